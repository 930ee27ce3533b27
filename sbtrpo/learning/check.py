"""Try a method, and tell what to change before training with it."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sbtrpo.algorithms.base import Batch
from sbtrpo.config import TrainConfig
from sbtrpo.config.catalogue import UnfitMethod, method
from sbtrpo.config.run import Engine
from sbtrpo.envs.foreign.findings import SEVERITIES, CheckFinding, CheckReport
from sbtrpo.errors import UserError, where_raised
from sbtrpo.learning.placement import keeping_torch
from sbtrpo.learning.trainer import Trainer
from sbtrpo.nets.network import flatten
from sbtrpo.runs import checkpoint

EPOCHS, SAVED_AFTER = 4, 2
NEEDED = ("skipped", "accepted_step", "kl")
"""Numbers that every update reports; the base classes do it."""


def check_method(name: str, seed: int = 0, task: str = "ToyCorridor-v0", engine: Engine = "cpu") -> CheckReport:
    """Train with a method for a moment: whether it runs, repeats, resumes, and leaves alone what is not its own.

    Args:
        name: as `--algo` takes it.
        seed: of the run.
        task: on which it is tried.
        engine: of the worlds, and so where the method's tensors are.

    >>> check_method("cpo").ok
    True
    """
    try:
        entry = method(name)
        config = TrainConfig(
            task=task, algo=name, seed=seed, num_envs=4, steps_per_epoch=400, epoch_growth=0, total_steps=400 * EPOCHS,
            threads=1, learner_threads=1, engine=engine,
        )  # fmt: skip
    except (UnfitMethod, ValueError) as error:
        return CheckReport(name, (CheckFinding("error", str(error)),))
    try:
        Trainer(config)
    except (UserError, ValueError) as error:
        return CheckReport(name, (CheckFinding("error", str(error)),))
    tryout = Tryout(config)
    tryout.run()
    if not entry.summary:
        tryout.tell("note", "the class has no docstring", "its first line stands in `sbtrpo algorithms` and reports")
    return CheckReport(name, tuple(sorted(tryout.findings, key=lambda finding: SEVERITIES.index(finding.severity))))


class Tryout:
    """A short run of a method, watched."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.findings: list[CheckFinding] = []

    def tell(self, severity: Any, what: str, remedy: str = "") -> None:
        """Note a finding, once."""
        finding = CheckFinding(severity, what, remedy)
        if finding not in self.findings:
            self.findings.append(finding)

    def run(self) -> None:
        """Everything, as far as it gets."""
        try:
            with keeping_torch():
                self._try()
        except Exception as error:
            cause = error.__cause__ or error
            self.tell("error", f"an update raised {type(cause).__name__}: {cause}", where_raised(cause))

    def _try(self) -> None:
        trainer = Watched(self.config, self)
        start = flatten(trainer.policy.params).clone()
        rows = [trainer.run_epoch().row for _ in range(SAVED_AFTER)]
        resumed = self._restored(trainer)
        rows += [trainer.run_epoch().row for _ in range(EPOCHS - SAVED_AFTER)]
        self._check_rows(rows)
        end = flatten(trainer.policy.params)
        if not bool(torch.isfinite(end).all()):
            self.tell("error", "the policy's parameters are not finite", "see what the step divides by")
        elif torch.equal(start, end):
            self.tell("warning", f"{EPOCHS} updates left the policy as it was", "see whether a step is ever accepted")
        if resumed is not None:
            later = [resumed.run_epoch().row for _ in range(EPOCHS - SAVED_AFTER)]
            remedy = "give all that the method carries from one update to the next to state_dict and load_state_dict"
            self._compare(rows[SAVED_AFTER:], later, "a run that was saved and restored goes on otherwise", remedy)
        again = Trainer(self.config)
        remedy = "draw random numbers from self.orders, and keep nothing in the class or the module"
        repeated = [again.run_epoch().row for _ in range(EPOCHS)]
        self._compare(rows, repeated, "the same seed gives other numbers the second time", remedy)

    def _restored(self, trainer: Trainer) -> Trainer | None:
        """Another trainer, from a checkpoint of this one."""
        try:
            with tempfile.TemporaryDirectory() as folder:
                checkpoint.save(Path(folder) / "state", trainer.state_dict())
                state = checkpoint.load(Path(folder) / "state")
            resumed = Trainer(self.config)
            resumed.load_state_dict(state)
        except Exception as error:
            remedy = "state_dict may hold numbers, text, arrays, tensors, and dicts and lists of these"
            self.tell("error", f"its state cannot be saved and restored: {type(error).__name__}: {error}", remedy)
            return None
        return resumed

    def _check_rows(self, rows: list[dict[str, float]]) -> None:
        names = list(rows[0])
        for row in rows:
            if odd := sorted(set(row) ^ set(names)):
                self.tell(
                    "error", f"not every update reports the same numbers: {odd[0]}", "use NaN where there is none"
                )
            if bad := [name for name, value in row.items() if not isinstance(value, int | float)]:
                self.tell("error", f"it reports {bad[0]} as {type(row[bad[0]]).__name__}", "report floats")
        if missing := [name for name in NEEDED if name not in names]:
            self.tell("error", f"updates do not report {', '.join(missing)}", "override `propose`, `slopes` or `loss`")
        if all(row.get("accepted_step") == 0 for row in rows):
            self.tell("warning", "no step was accepted", "see what the line search asks for")

    def _compare(self, one: list[dict[str, float]], other: list[dict[str, float]], what: str, remedy: str) -> None:
        for first, second in zip(one, other, strict=True):
            differing = [name for name in first if not _same(first[name], second.get(name, math.nan))]
            if differing:
                self.tell("error", f"{what}: {differing[0]} differs in epoch {first['epoch']:.0f}", remedy)
                return


class Watched(Trainer):
    """A trainer that looks at what an update touched."""

    def __init__(self, config: TrainConfig, tryout: Tryout) -> None:
        super().__init__(config)
        update = self.method.update

        def watched(batch: Batch, *arguments: Any) -> Mapping[str, float]:
            copies = {name: value.clone() for name, value in vars(batch).items() if isinstance(value, torch.Tensor)}
            statistics = self.policy.normaliser.state_dict()
            streams = torch.get_rng_state().clone(), np.random.get_state()[1].copy()  # type: ignore[index]
            report = update(batch, *arguments)
            for name, value in copies.items():
                if not torch.equal(value, getattr(batch, name)):
                    tryout.tell("error", f"an update changes batch.{name}", "compute with copies of the batch")
            changed = self.policy.normaliser.state_dict()
            if any(not np.array_equal(statistics[name], changed[name]) for name in statistics):
                tryout.tell("error", "an update changes the observation statistics", "they belong to the rollout")
            now = torch.get_rng_state(), np.random.get_state()[1]  # type: ignore[index]
            if not torch.equal(streams[0], now[0]) or not np.array_equal(streams[1], now[1]):
                tryout.tell("error", "an update draws from a global generator", "draw from self.orders")
            return report

        self.method.update = watched  # type: ignore[assignment,method-assign]


def _same(one: float, other: float) -> bool:
    return one == other or (one != one and other != other)
