"""The training loop: roll out, form advantages, update, report. Read this file first.

A `Trainer` holds everything that a run's next epoch depends on, and `state_dict()` is all of it: what is not there does
not exist after a resume.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sbtrpo.algorithms import make_method
from sbtrpo.algorithms.base import Batch
from sbtrpo.algorithms.multipliers import Limited
from sbtrpo.config import TrainConfig
from sbtrpo.envs import make_pool
from sbtrpo.errors import UserError
from sbtrpo.learning.advantages import baseline_features, centre, fit_baseline, gae, returns_to_go, standardise
from sbtrpo.learning.display import Display
from sbtrpo.learning.metrics import EpisodeWindows
from sbtrpo.learning.rollout import Collector, Rollout
from sbtrpo.nets.critics import Critics
from sbtrpo.nets.policy import make_policy
from sbtrpo.runs.checkpoint import CheckpointStore
from sbtrpo.runs.folder import RunFolder, default_path

SKIPS_TO_STOP = 10


class TrainingError(UserError, RuntimeError):
    """The run cannot go on in a sensible way; the message says what to try."""


@dataclass(frozen=True)
class Epoch:
    """What one epoch gave."""

    row: dict[str, float]
    """Metrics and diagnostics; the same in every run with these settings."""
    episodes: dict[str, NDArray[Any]]
    """The episodes that ended in it."""
    timing: dict[str, float]
    """Seconds and steps per second; different in every run."""


@dataclass(frozen=True)
class Advantages:
    """Estimates before normalisation, (T, N) each, and value targets for the critics, (K, T, N)."""

    reward: Tensor
    cost: Tensor
    targets: Tensor | None


class Trainer:
    """A method on one task."""

    def __init__(self, config: TrainConfig) -> None:
        self.config, settings = config, config.method
        if config.learner_threads:
            torch.set_num_threads(config.learner_threads)
        streams = np.random.SeedSequence(config.seed).generate_state(4, np.uint32)
        self._init, noise, self._orders = (torch.Generator().manual_seed(int(s)) for s in streams[:3])
        pool = make_pool(config.task, config.num_envs, int(streams[3]), threads=config.threads)
        size, space = pool.task.observation_size, pool.single_action_space
        heads, rate = settings.heads(), settings.critic_learning_rate
        self.critics: Critics | None = None
        if heads:
            self.critics = Critics(heads, size, config.hidden, rate, self._init, config.device)
        self.policy = make_policy(size, space, config.hidden, self._init, config.device)
        self.method = make_method(self.policy, self.critics, config, self._orders)
        self.collector = Collector(pool, self.policy, noise)
        self.collector.start()
        self.windows = EpisodeWindows()
        self.baseline: Tensor | None = None
        """Weights of the linear baseline, (features, 2), fitted on the previous epoch."""
        self.epoch = 0
        self.skipped = self.skipped_in_a_row = self.faults = 0

    def run_epoch(self) -> Epoch:
        """Collect, update, and tell what happened."""
        started = time.perf_counter()
        rollout = self.collector.collect(self.config.steps_per_world)
        return self.learn(rollout, time.perf_counter() - started)

    def learn(self, rollout: Rollout, rollout_seconds: float) -> Epoch:
        """The epoch's part after the rollout: update, and tell what happened."""
        started = time.perf_counter()
        batch = self._batch(rollout, self._advantages(rollout))
        cost, statistics = self._statistics(rollout)
        diagnostics = self.method.update(batch, cost, self.epoch / self.config.epochs)
        update_seconds = time.perf_counter() - started

        self.epoch += 1
        self.faults += rollout.faults
        self._count(diagnostics)
        row = {
            "epoch": float(self.epoch),
            "steps": float(self.epoch * self.config.steps_per_epoch),
            **statistics,
            "cost_statistic": cost,
            **diagnostics,
            "log_std": float(self.policy.log_std.mean()),
            "skipped_updates": float(self.skipped),
            "faults": float(self.faults),
        }
        timing = {
            "rollout_seconds": rollout_seconds,
            "update_seconds": update_seconds,
            "rollout_steps_per_second": self.config.steps_per_epoch / rollout_seconds,
            "steps_per_second": self.config.steps_per_epoch / (rollout_seconds + update_seconds),
        }
        return Epoch(row, rollout.episodes, timing)

    def _statistics(self, rollout: Rollout) -> tuple[float, dict[str, float]]:
        """The cost that the method reads, and the statistics of this epoch's episodes.

        Before any episode has ended that cost is 0. The published code also reads 0 in the first epoch in which one
        ends; and an epoch without one, which is fatal there, repeats the statistic before it.
        """
        before = self.windows.begun
        if rollout.episodes:
            finished = rollout.episodes
            self.windows.add(finished["return"], finished["cost"], finished["length"])
        statistics = self.windows.epoch_statistics()
        published = isinstance(self.config.method, Limited) and self.config.method.first_cost_zero
        unread = not self.windows.begun or (published and not before)
        return 0.0 if unread else statistics["cost"], statistics

    # ---- the update's parts ------------------------------------------------------------------------------------

    def _advantages(self, rollout: Rollout) -> Advantages:
        config, ended = self.config, rollout.terminated | rollout.truncated
        returns = torch.stack([returns_to_go(x, ended, config.gamma) for x in (rollout.reward, rollout.cost)])
        estimates = returns.clone()
        if config.method.advantage == "mc-linear":
            features = baseline_features(rollout.obs, rollout.time)
            if self.baseline is not None:
                estimates = returns - torch.movedim(features @ self.baseline, 2, 0)
            flat = features.reshape(-1, features.shape[-1])
            self.baseline = fit_baseline(flat, returns.reshape(2, -1).T, config.method.baseline_ridge)
        targets = None
        if self.critics is not None:
            targets, values = self._judge(rollout, ended, self.critics)
            estimates[: len(values)] = targets - values
        return Advantages(estimates[0], estimates[1], targets)

    @torch.no_grad()
    def _judge(self, rollout: Rollout, ended: Tensor, critics: Critics) -> tuple[Tensor, Tensor]:
        """Value targets and values of each head, (K, T, N): GAE on what the critics thought during collection."""
        config, device = self.config, self.config.device
        values = critics(rollout.obs.to(device)).cpu()
        after = critics(rollout.last_obs.to(device)).cpu()
        next_values = torch.cat([values[:, 1:], after[:, None]], dim=1)
        # The published code shows the critics the raw last observation at a time-out.
        final_obs = rollout.final_obs_raw if config.method.bootstrap_raw_observation else rollout.final_obs
        next_values[:, rollout.truncated & ~rollout.terminated] = critics(final_obs.to(device)).cpu()
        estimates = [
            gae(x, value, following, rollout.terminated, ended, config.gamma, config.method.gae_lambda)
            for x, value, following in zip((rollout.reward, rollout.cost), values, next_values, strict=False)
        ]
        return torch.stack(estimates) + values, values

    def _batch(self, rollout: Rollout, advantages: Advantages) -> Batch:
        """All samples in a row, on the learner's device; reward advantages standardised, those of cost centred."""
        device = self.config.device
        return Batch(
            obs=rollout.obs.reshape(-1, rollout.obs.shape[-1]).to(device),
            action=rollout.action.reshape(-1, rollout.action.shape[-1]).to(device),
            log_prob=rollout.log_prob.reshape(-1).to(device),
            advantages=torch.stack(
                [standardise(advantages.reward.reshape(-1)), centre(advantages.cost.reshape(-1))]
            ).to(device),
            targets=None if advantages.targets is None else advantages.targets.flatten(1).to(device),
        )

    def _count(self, diagnostics: Mapping[str, float]) -> None:
        """Count updates that changed nothing because something in them was not a number, or no step was acceptable."""
        failed = diagnostics["accepted_step"] == 0.0
        self.skipped += int(failed)
        broken = diagnostics["skipped"] == 1.0 if self.method.may_stall else failed
        self.skipped_in_a_row = self.skipped_in_a_row + 1 if broken else 0

    def check(self) -> None:
        """Stop a run whose updates keep failing."""
        if self.skipped_in_a_row >= SKIPS_TO_STOP:
            raise TrainingError(
                f"{self.skipped_in_a_row} updates in a row changed nothing (epoch {self.epoch}): gradients were not"
                " finite or no step was acceptable; look at gradient_norm_r, gradient_norm_c and kl in metrics.csv, and"
                " try a smaller target_kl or a larger cg_damping"
            )

    # ---- the whole state ---------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All that the next epoch depends on."""
        return {
            "config": {name: _plain(value) for name, value in self.config.settings().items()},
            "policy": self.policy.state_dict(),
            "critics": None if self.critics is None else self.critics.state_dict(),
            "method": self.method.state_dict(),
            "collector": self.collector.state_dict(),
            "windows": self.windows.state_dict(),
            "baseline": self.baseline,
            "orders": self._orders.get_state(),
            "epoch": self.epoch,
            "skipped": self.skipped,
            "skipped_in_a_row": self.skipped_in_a_row,
            "faults": self.faults,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict` of a trainer with the same settings."""
        self.policy.load_state_dict(state["policy"])
        if self.critics is not None:
            self.critics.load_state_dict(state["critics"])
        self.method.load_state_dict(state["method"])
        self.collector.load_state_dict(state["collector"])
        self.windows.load_state_dict(state["windows"])
        self.baseline = None if state["baseline"] is None else torch.as_tensor(state["baseline"])
        self._orders.set_state(torch.as_tensor(state["orders"]))
        self.epoch, self.skipped = int(state["epoch"]), int(state["skipped"])
        self.skipped_in_a_row, self.faults = int(state["skipped_in_a_row"]), int(state["faults"])


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def train(config: TrainConfig, out: str | Path | None = None, quiet: bool = False, wandb: bool = False) -> Path:
    """Train a policy; returns the run's folder.

    Args:
        config: the settings.
        out: the run's folder, new or empty; `runs/<task>/<algo>/seed<k>-<hash>` if left out.
        quiet: show nothing.
        wandb: also log to Weights & Biases.

    >>> import tempfile
    >>> config = TrainConfig(task="ToyCorridor-v0", num_envs=4, steps_per_epoch=200, total_steps=400)
    >>> run = train(config, out=tempfile.mkdtemp(), quiet=True)
    >>> sorted(path.name for path in run.iterdir())[:4]
    ['checkpoints', 'config.toml', 'curves.png', 'episodes.parquet']
    """
    path = Path(out) if out is not None else default_path(config)
    trainer = Trainer(config)
    return _run(trainer, RunFolder.create(path, config, wandb=wandb), quiet)


def resume(run: str | Path, quiet: bool = False, wandb: bool = False) -> Path:
    """Continue a run from its newest intact checkpoint, as if it had never stopped."""
    folder = RunFolder.open(run, wandb=wandb)
    trainer, notes = restore(folder)
    return _run(trainer, folder, quiet, notes)


def restore(folder: RunFolder) -> tuple[Trainer, list[str]]:
    """A trainer that continues the folder's run, and notes on where it goes on; the folder forgets what came after."""
    trainer = Trainer(folder.config)
    notes: list[str] = []
    try:
        epoch, state, notes = _store(folder).load_latest()
        trainer.load_state_dict(state)
    except FileNotFoundError:  # stopped before the first checkpoint
        epoch = 0
    folder.rewind(epoch)
    return trainer, [*notes, f"resuming after epoch {epoch}"]


def _store(folder: RunFolder) -> CheckpointStore:
    return CheckpointStore(folder.checkpoints, folder.config.keep_last, folder.config.keep_every)


class Recorder:
    """Puts a run's epochs into its folder, and what came out."""

    def __init__(self, trainer: Trainer, folder: RunFolder) -> None:
        self.trainer, self.folder, self._store = trainer, folder, _store(folder)
        self._row: dict[str, float] = {}

    def record(self, epoch: Epoch, stopping: bool = False) -> None:
        """Log an epoch, and save the state if it is time, or the run is `stopping`."""
        config, done = self.folder.config, self.trainer.epoch
        self._row = epoch.row
        self.folder.log_epoch(epoch.row, epoch.episodes, epoch.timing)
        if done % config.checkpoint_every == 0 or done == config.epochs or stopping:
            self.folder.flush_episodes()
            self._store.save(done, self.trainer.state_dict(), score=epoch.row["safe_reward"])

    def close(self) -> bool:
        """End the session; returns whether the run is at its end, whose summary is then written."""
        if self.trainer.epoch < self.folder.config.epochs:
            self.folder.close()
            return False
        row = self._row or {name: float(values[-1]) for name, values in self.folder.metrics().items()}
        self.folder.finish({"epochs": self.trainer.epoch, "faults": self.trainer.faults, "final": row})
        return True


def _run(trainer: Trainer, folder: RunFolder, quiet: bool, notes: list[str] | None = None) -> Path:
    """Epoch after epoch to the end, to Ctrl-C, or to a state in which it makes no sense to go on."""
    config, recorder = folder.config, Recorder(trainer, folder)
    title = f"{config.algo} on {config.task}, seed {config.seed}"
    with Display(config.epochs, config.total_steps, title, quiet) as display, interruptible() as interrupted:
        for note in notes or []:
            display.say(note)
        while trainer.epoch < config.epochs and not interrupted.is_set():
            epoch = trainer.run_epoch()
            recorder.record(epoch, interrupted.is_set())
            display.update(epoch.row, epoch.timing)
            trainer.check()
        if trainer.epoch < config.epochs:
            display.say(f"stopped after epoch {trainer.epoch}; continue with: sbtrpo resume {folder.path}")
    recorder.close()
    return folder.path


@contextlib.contextmanager
def interruptible() -> Iterator[threading.Event]:
    """Ctrl-C asks for a stop after the running epoch; a second one stops at once."""
    asked = threading.Event()

    def ask(number: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    if threading.current_thread() is not threading.main_thread():  # only it may set handlers
        yield asked
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
