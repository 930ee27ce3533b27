"""Hooks into training: what callbacks are told and may do, and the two that a run's settings switch on.

A callback is an object whose methods a run calls as it goes on (`docs/callbacks.md`). It may read everything. What it
changes is part of what the run computes, and only a resume with the same callbacks repeats it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from typing_extensions import override

from sbtrpo.algorithms.base import Diagnostics
from sbtrpo.config import TrainConfig
from sbtrpo.config.run import RunSettings
from sbtrpo.config.settings import Rule, declared
from sbtrpo.errors import UserError, sentence
from sbtrpo.learning.rollout import Rollout
from sbtrpo.nets.policy import Policy
from sbtrpo.runs.evaluation import DEVICES, Evaluation, NoEpisodes, evaluate_policy, policy_from
from sbtrpo.runs.folder import RunFolder
from sbtrpo.runs.judgement import Merit, merit

if TYPE_CHECKING:
    from sbtrpo.learning.trainer import Epoch, Trainer

Hook = Literal[
    "on_start", "on_epoch_begin", "on_rollout", "on_update", "on_epoch_end", "on_evaluation", "on_stop"
]  # fmt: skip


class Callback:
    """What a run calls as it goes on; a subclass has those methods that it needs."""

    def on_start(self, run: Run) -> None:
        """A run begins, or goes on after `run.epoch` epochs.

        Where this raises, its folder is as it was before, but for rows after the last checkpoint, which come again.
        """

    def on_epoch_begin(self, run: Run) -> None:
        """`run.epoch` epochs are over, and one more begins."""

    def on_rollout(self, run: Run, rollout: Rollout) -> None:
        """The steps are taken, and the update comes next, which sees what is changed in the rollout's tensors."""

    def on_update(self, run: Run, diagnostics: Diagnostics) -> None:
        """The policy has changed; numbers that are added to the diagnostics, in every epoch, go to metrics.csv.

        They have names of their own: what the method and the trainer report stays as it is.
        """

    def on_epoch_end(self, run: Run, epoch: Epoch) -> None:
        """The epoch is in metrics.csv, and not yet in a checkpoint: after a kill it may come again."""

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        """The policy was evaluated on fresh worlds, as the setting `evaluate_every` asks for."""

    def on_stop(self, run: Run) -> None:
        """All is saved: at the end, after `run.stop`, or after Ctrl-C; not after an error."""


class Run:
    """A run under way, as callbacks see it.

    Args:
        trainer: what learns.
        folder: where it is put down.
        callbacks: of the user's; those of the settings come before them.
        say: shows a line to whoever watches.
    """

    def __init__(
        self, trainer: Trainer, folder: RunFolder, callbacks: Iterable[Callback], say: Callable[[str], None]
    ) -> None:
        self.trainer, self.folder, self.say = trainer, folder, say
        self.stopped = folder.stopped
        """Why the run is to stop, once someone has said so, in this session or before."""
        config = folder.config
        of_settings = [Evaluating(config.evaluate_every, config.evaluate_episodes)] if config.evaluate_every else []
        patient = [EarlyStopping(config.patience)] if config.patience else []
        self._callbacks: list[Callback] = [*of_settings, *patient, *callbacks]

    @property
    def config(self) -> TrainConfig:
        """The settings."""
        return self.folder.config

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.folder.path

    @property
    def epoch(self) -> int:
        """How many epochs are over."""
        return self.trainer.epoch

    @property
    def policy(self) -> Policy:
        """The policy that learns."""
        return self.trainer.policy

    def stop(self, reason: str) -> None:
        """End the run after this epoch, or, in `on_start`, before the next.

        It then counts as finished, and `summary.json` says why.
        """
        self.stopped = self.stopped or sentence(reason or "") or "a callback asked for it"

    def evaluate(self, episodes: int = 100, seed: int | None = None, deterministic: bool = False) -> Evaluation:
        """What the policy is worth now, in worlds of its own; the run goes on as if nobody had asked.

        Args:
            episodes: how many.
            seed: of the worlds and of the policy's noise. If left out, one that depends on the run's seed alone: the
                same worlds every time, and none that it trains in.
            deterministic: act by the policy's mean instead of sampling.
        """
        placed = self.trainer.config
        if seed is None:
            seed = int(np.random.SeedSequence(placed.seed, spawn_key=(1,)).generate_state(1)[0])
        policy = policy_from(self.policy.state_dict(), placed, DEVICES.get(placed.engine))
        stopping = getattr(self.trainer.collector.pool, "stopping", lambda: False)
        return evaluate_policy(
            policy, placed, episodes, seed, deterministic, placed.threads, engine=placed.engine, stopping=stopping
        )

    def tell(self, hook: Hook, *what: Any) -> None:
        """Call a method of all callbacks, in their order."""
        for callback in self._callbacks:
            getattr(callback, hook)(self, *what)


def check_callbacks(callbacks: Callback | Iterable[Callback]) -> list[Callback]:
    """The callbacks, or the only one, if they are such."""
    given: list[Any] = [callbacks]
    if isinstance(callbacks, Iterable) and not isinstance(callbacks, Callback):
        given = list(callbacks)
    for callback in given:
        if isinstance(callback, type) and issubclass(callback, Callback):
            raise ValueError(f"callbacks are objects, and {callback.__name__} is a class; write {callback.__name__}()")
        if not isinstance(callback, Callback):
            raise ValueError(f"a callback derives from sbtrpo.Callback, which {callback!r} does not")
    return given


def check_names(numbers: Iterable[Any], columns: Container[str], whose: str) -> None:
    """Refuse numbers that would stand in the place of other columns of metrics.csv, or cannot be a column's name."""
    for name in numbers:
        if name in columns:
            raise UserError(f"{whose} reports {name}, which metrics.csv has already; give it another name")
        if not isinstance(name, str) or not name or not name.isprintable():
            raise UserError(f"{whose} reports {name!r}, which cannot be the name of a column; give it another one")


def added_numbers(told: Mapping[str, Any], before: Diagnostics, columns: Container[str]) -> dict[str, float]:
    """What callbacks have added to the diagnostics of an update, beside these columns."""
    added = {name: value for name, value in told.items() if name not in before or value is not before[name]}
    check_names(added, columns, "a callback")
    try:
        return {name: float(value) for name, value in added.items()}
    except (TypeError, ValueError, RuntimeError) as error:  # the last of a tensor with several elements
        raise UserError(f"numbers that a callback adds to diagnostics are floats, got {added}") from error


class Evaluating(Callback):
    """Evaluates the policy on fresh worlds every so many epochs, and puts down what came out."""

    def __init__(self, every: int, episodes: int) -> None:
        self.every, self.episodes = every, episodes

    @override
    def on_epoch_end(self, run: Run, epoch: Epoch) -> None:
        if run.epoch % self.every:
            return
        try:
            found = run.evaluate(self.episodes)
        except NoEpisodes as error:  # a later policy may do better
            run.say(f"epoch {run.epoch}: no evaluation on fresh worlds, {error}")
            return
        run.folder.log_evaluation({"epoch": run.epoch, "steps": epoch.row["steps"], **found.numbers()})
        low, high = found.safety_probability_interval
        episodes = f"{found.episodes} episode{'s' * (found.episodes > 1)}"
        run.say(
            f"epoch {run.epoch}, {episodes} in fresh worlds: reward {found.reward:z.2f}, cost {found.cost:z.2f}, safety"
            f" probability {found.safety_probability:.2f} (95 %: {low:.2f} to {high:.2f}), safe reward"
            f" {found.safe_reward:z.2f}"
        )
        run.tell("on_evaluation", found)


class EarlyStopping(Callback):
    """Stops a run once `patience` evaluations in a row were no better than an earlier one.

    Which of two is better `sbtrpo.runs.judgement` says. What it knows it reads from evaluations.csv, so that a resumed
    run stops where one that never stopped does; in a run that was made longer, it begins to count there.
    """

    def __init__(self, patience: int) -> None:
        self.patience: int = replace(declared(RunSettings)["patience"], rule=Rule(least=1)).checked(patience)
        self._merits: dict[int, Merit] = {}

    @override
    def on_start(self, run: Run) -> None:
        if not run.config.evaluate_every:
            raise UserError("early stopping goes by evaluations; set evaluate_every, such as 25")
        begin = max((length["until_epoch"] for length in run.folder.lengths), default=0)
        known = run.folder.evaluations()
        columns = (known.get(name, ()) for name in ("epoch", "safety_probability", "safe_reward"))
        rows = zip(*columns, strict=True)
        self._merits = {int(epoch): merit(safety, reward) for epoch, safety, reward in rows if epoch > begin}
        self._consider(run)  # a kill may have come before the end was written

    @override
    def on_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        self._merits[run.epoch] = merit(evaluation.safety_probability, evaluation.safe_reward)
        self._consider(run)

    def _consider(self, run: Run) -> None:
        if not self._merits:
            return
        best = max(self._merits, key=lambda epoch: (self._merits[epoch], -epoch))
        waited = sum(epoch > best for epoch in self._merits)
        if waited >= self.patience:
            run.stop(f"{waited} evaluation{'s' * (waited > 1)} in a row no better than that of epoch {best}")
