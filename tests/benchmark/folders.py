"""Run folders made by hand, and a launcher that runs nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sbtrpo import TrainConfig
from sbtrpo.benchmark.plan import run_path
from sbtrpo.benchmark.schedule import Ended
from sbtrpo.benchmark.worker import Job
from sbtrpo.config.file import write_config
from sbtrpo.learning.trainer import Trainer

TOY = {"task": "ToyCorridor-v0", "num_envs": 2, "steps_per_epoch": 100, "total_steps": 300}
HEADER = "epoch,steps,reward,cost,safety_probability,safe_reward"


def toy(**settings: object) -> TrainConfig:
    return TrainConfig(**{**TOY, **settings})


def write_run(root: Path, config: TrainConfig, rows: Sequence[Sequence[float]] = (), done: bool | None = None) -> Path:
    """A run's folder with these rows (reward, cost, safety probability, safe reward); done if all epochs are there."""
    path = run_path(root, config)
    path.mkdir(parents=True, exist_ok=True)
    write_config(path / "config.toml", config)
    lines = [f"{k},{k * config.steps_per_epoch},{','.join(map(repr, row))}" for k, row in enumerate(rows, start=1)]
    (path / "metrics.csv").write_text("\n".join([HEADER, *lines, ""]))
    seconds = [f"{k},{0.5 * k}" for k in range(1, len(rows) + 1)]
    (path / "timing.csv").write_text("\n".join(["epoch,update_seconds", *seconds, ""]))
    if len(rows) >= config.epochs if done is None else done:
        (path / "summary.json").write_text(json.dumps({"epochs": config.epochs}))
    return path


def finish(root: Path, config: TrainConfig) -> None:
    write_run(root, config, [(1.0, 2.0, 0.5, 0.5)] * config.epochs)


Behaviour = Callable[[Job], int]


class FakeLauncher:
    """Jobs that are over as soon as they begin; `behaviour` says what they do and with which status they end."""

    threads = 1
    note = "nowhere"

    def __init__(self, behaviour: Behaviour, slots: int = 2, error: str = "") -> None:
        self.behaviour, self.slots, self.error = behaviour, slots, error
        self.started: list[Job] = []
        self.stopped = self.killed = False
        self._jobs: list[Job] = []

    def start(self, job: Job) -> None:
        self.started.append(job)
        self._jobs.append(job)

    def wait(self, seconds: float) -> list[Ended]:
        ended = [Ended(job, self.behaviour(job), self.error) for job in self._jobs]
        self._jobs = []
        return ended

    def stop(self) -> None:
        self.stopped = True

    def kill(self) -> None:
        self.killed = True


def break_learner(patch: pytest.MonkeyPatch, seed: int) -> None:
    """Let the learner of this seed fail in its second epoch."""
    learn = Trainer.learn

    def breaking(trainer: Trainer, rollout: Any, seconds: float) -> Any:
        if trainer.config.seed == seed and trainer.epoch == 1:
            raise RuntimeError("this one breaks")
        return learn(trainer, rollout, seconds)

    patch.setattr(Trainer, "learn", breaking)
