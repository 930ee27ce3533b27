"""The training loop: roll out, form advantages, update, report. Read this file first.

A `Trainer` holds everything that a run's next epoch depends on, and `state_dict()` is all of it: what is not there does
not exist after a resume. `training.py` makes runs in folders of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sbtrpo.algorithms import make_method
from sbtrpo.algorithms.base import Batch, Costs, Diagnostics, by_constraint
from sbtrpo.algorithms.multipliers import Limited
from sbtrpo.config import TrainConfig
from sbtrpo.envs import Pool, make_pool
from sbtrpo.envs.constraints import make_constraints
from sbtrpo.envs.engines import within_memory
from sbtrpo.errors import UserError, where_raised
from sbtrpo.learning.advantages import baseline_features, fit_baseline, gae, normalise, paths, returns_to_go
from sbtrpo.learning.callbacks import added_numbers, check_names
from sbtrpo.learning.design import design_for
from sbtrpo.learning.identity import identities, plain
from sbtrpo.learning.metrics import WINDOW, EpisodeWindows
from sbtrpo.learning.off_policy import FEW_STEPS, OffPolicy
from sbtrpo.learning.placement import collector_class, place
from sbtrpo.learning.rollout import TOTAL_ONLY, Collector, Rollout
from sbtrpo.learning.start import start_of, take_over
from sbtrpo.learning.statistics import settle
from sbtrpo.nets.critics import Critics
from sbtrpo.nets.policy import make_policy

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
    """Before normalisation."""

    estimates: Tensor
    """(1 + C, T, N) of reward, then of each constraint's cost."""
    targets: Tensor | None
    """(K, T, N) what the critics should have said, if there are critics."""


class Trainer:
    """A method on one task.

    Args:
        config: the settings.
        before: the engine that the run has been on, which it keeps where its settings leave that open.
    """

    def __init__(self, config: TrainConfig, before: str = "") -> None:
        self.placement = place(config, before)
        config = config.replace(engine=self.placement.engine, device=self.placement.device)
        self.config, settings = config, config.method
        if config.update_threads:
            torch.set_num_threads(config.update_threads)
        streams = np.random.SeedSequence(config.seed).generate_state(4, np.uint32)
        self._init, self._noise, self._orders = (torch.Generator().manual_seed(int(s)) for s in streams[:3])
        self._worlds_seed = int(streams[3])
        pool = self._pool(config.num_envs)
        self.constraints = make_constraints(config.constraints, pool)
        names = self.constraints.names
        size, space, design = pool.task.observation_size, pool.env_action_space, design_for(config, pool)
        # The policy is drawn first, so that every method starts from the same one.
        self.policy = make_policy(size, space, config.hidden, self._init, config.device, design)
        heads, rate = settings.heads(len(names)), settings.critic_learning_rate
        self.critics: Critics | None = None
        if heads:
            self.critics = Critics(heads, size, config.hidden, rate, self._init, config.device, design=design)
        self.off_policy: OffPolicy | None = None
        if settings.in_effect("off-policy"):
            judged = slice(int(settings.advantage == "off-policy-cost"), 1 + len(names))
            amounts = settings.replay_steps, settings.replay_updates, settings.pessimism
            if (steps := config.steps_per_epoch // config.num_envs) <= FEW_STEPS:
                raise UserError(
                    f"advantage {settings.advantage} looks {FEW_STEPS} steps ahead, and an epoch has"
                    f" {steps} steps of each world; give more steps_per_epoch or fewer num_envs"
                )
            steady = config.statistics == "steady"
            self.off_policy = OffPolicy(judged, self.policy, config.gamma, *amounts, self._init, steady)
        self.start = start_of(config)
        """What the run begins with; None where it begins anew."""
        self.beginning = "" if self.start is None else take_over(self.start, config, self.policy, self.critics)
        self._steady = config.statistics == "steady" and self.policy.normaliser.learns
        if self._steady and self.start is not None:
            self.policy.normaliser.learns = False
        self._identities = identities(config, self.start)  # files may change while the run goes on
        keys = names if len(names) > 1 else ("c",)
        self.method = make_method(self.policy, self.critics, config, self._orders, keys)
        self.collector = self._collector(pool)
        with within_memory(config.num_envs):
            self.collector.start()
        self._cost_keys, columns = ["cost"], list[str]()
        if names != TOTAL_ONLY:
            self._cost_keys = [f"cost_{name}" for name in names]
            columns = [*self._cost_keys, *(f"safety_{name}" for name in names)]
        self._columns = columns
        self.windows = EpisodeWindows(columns, whole_epochs=config.num_envs > WINDOW or config.epoch_growth > 0)
        self.baseline: Tensor | None = None
        """Weights of the linear baseline, (features, 1 + C), fitted on the previous epoch."""
        self._errors: dict[str, float] = {}
        self.tell: Callable[..., None] = _nobody_listens
        """Called with what happens within an epoch (see `sbtrpo.learning.callbacks.Run.tell`)."""
        self.epoch = 0
        self.skipped = self.skipped_in_a_row = self.faults = 0

    @property
    def steps_per_world(self) -> int:
        """T, the steps of each world in the next epoch."""
        return self.config.steps_in(self.epoch) // self.config.worlds_in(self.epoch)

    def _pool(self, worlds: int) -> Pool:
        config = self.config
        return make_pool(
            config.task,
            worlds,
            self._worlds_seed,
            config.engine,
            config.threads,
            timeout=config.env_timeout,
            end_at_violation=config.end_at_violation,
        )

    def _collector(self, pool: Pool) -> Collector:
        final, faulted = self.critics is not None, self.config.faulted
        return collector_class(pool)(pool, self.policy, self._noise, self.constraints, faulted=faulted, final=final)

    def grow(self) -> bool:
        """Add the worlds that the next epoch has more than the last; returns whether there are any."""
        if (worlds := self.config.worlds_in(self.epoch)) == self.collector.pool.num_worlds:
            return False
        with within_memory(worlds):
            collector = self._collector(self._pool(worlds))
            collector.go_on_from(self.collector)
        self.collector = collector
        return True

    def run_epoch(self) -> Epoch:
        """Collect, update, and tell what happened."""
        self.tell("on_epoch_begin")
        started = time.perf_counter()
        self.grow()
        with within_memory(self.collector.pool.num_worlds):
            rollout = self.collector.collect(self.steps_per_world)
            return self.learn(rollout, time.perf_counter() - started)

    def learn(self, rollout: Rollout, rollout_seconds: float) -> Epoch:
        """The epoch's part after the rollout: update, and tell what happened."""
        self.tell("on_rollout", rollout)
        started = time.perf_counter()
        batch = self._batch(rollout, self._advantages(rollout))
        costs, statistics = self._statistics(rollout)
        diagnostics = self._update(batch, costs)
        if self._steady:
            settle(self.collector, [self.critics, self.off_policy], rollout)
        update_seconds = time.perf_counter() - started
        told = dict(diagnostics)
        self.tell("on_update", told)

        self.epoch += 1
        self.faults += rollout.faults
        self._count(diagnostics)
        before = {
            "epoch": float(self.epoch),
            "steps": float(self.config.steps_after(self.epoch)),
            **statistics,
            **by_constraint("cost_statistic", costs, self.constraints.names),
            **self._errors,
        }
        after = {
            "log_std": float(self.policy.log_std.mean()),
            "skipped_updates": float(self.skipped),
            "faults": float(self.faults),
            "faulted_episodes": int(rollout.faulted.sum()),
        }
        check_names(diagnostics, {*before, *after}, self.config.label)
        row = {**before, **diagnostics, **after}
        row |= added_numbers(told, diagnostics, row)
        return Epoch(row, rollout.episodes, self.timing(rollout_seconds, update_seconds))

    def timing(self, rollout_seconds: float, update_seconds: float) -> dict[str, float]:
        """The last epoch's seconds, and the steps per second that they amount to."""
        steps = self.config.steps_in(self.epoch - 1)
        return {
            "rollout_seconds": rollout_seconds,
            "update_seconds": update_seconds,
            "rollout_steps_per_second": steps / rollout_seconds,
            "steps_per_second": steps / (rollout_seconds + update_seconds),
        }

    def _update(self, batch: Batch, costs: Costs) -> Diagnostics:
        """The method's update; what a user's method raises is told with its place."""
        try:
            return self.method.update(batch, costs, self.config.share_after(self.epoch))
        except Exception as error:
            if ":" not in self.config.algo or isinstance(error, UserError):
                raise
            raise TrainingError(
                f"an update of {self.config.label} raised {type(error).__name__}: {error} ({where_raised(error)});"
                " `sbtrpo check --algo` tries a method"
            ) from error

    def _statistics(self, rollout: Rollout) -> tuple[list[float], dict[str, float]]:
        """The costs that the method reads, one of each constraint, and the statistics of this epoch's episodes.

        Before any episode has ended those costs are 0. The published code also reads 0 in the first epoch in which one
        ends; and an epoch without one, which is fatal there, repeats the statistic before it.
        """
        before = self.windows.begun
        finished = rollout.episodes
        if self.config.faulted == "apart":
            finished = {name: values[~rollout.faulted] for name, values in finished.items()}
        columns = self._constraint_columns(finished)
        safe = np.all([columns[key] == 0 for key in self._cost_keys], axis=0) if columns else None
        if finished:
            self.windows.add(finished["return"], finished["cost"], finished["length"], columns, safe)
        statistics = self.windows.epoch_statistics() | {"episodes": len(rollout.faulted)}
        published = isinstance(self.config.method, Limited) and self.config.method.first_cost_zero
        unread = not self.windows.begun or (published and not before)
        return [0.0 if unread else statistics[key] for key in self._cost_keys], statistics

    def _constraint_columns(self, episodes: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Each constraint's cost and safety in ended episodes; empty where the total cost is the only one."""
        if not self._columns or not episodes:
            return {}
        costs = np.stack([episodes[f"constraint_{name}"] for name in self.constraints.names])
        return dict(zip(self._columns, [*costs, *(costs == 0)], strict=True))

    # ---- the update's parts ------------------------------------------------------------------------------------

    def _advantages(self, rollout: Rollout) -> Advantages:
        settings, gamma = self.config.method, self.config.gamma
        hits = settings.first_hits(self.config.share_after(self.epoch))
        signals, terminated, ended = paths(rollout.signals, rollout.terminated, rollout.truncated, hits)
        assert len(signals) == 1 + len(self.constraints.names)
        returns = returns_to_go(signals, ended, gamma)
        estimates = returns.clone()
        if settings.advantage == "mc-linear":
            features = baseline_features(rollout.obs, rollout.time)
            if self.baseline is not None:
                estimates = returns - torch.movedim(features @ self.baseline.to(features.device), 2, 0)
            flat = features.reshape(-1, features.shape[-1])
            self.baseline = fit_baseline(flat, returns.flatten(1).T, settings.baseline_ridge)
        if self.off_policy is not None:
            judged = self.off_policy.signals
            estimates[judged], errors = self.off_policy.advantages(rollout, hits, self._orders)
            told = ("r", *self.method.names)[judged]
            self._errors = {f"action_critic_error_{name}": float(e) for name, e in zip(told, errors, strict=True)}
        targets = None
        if self.critics is not None:
            values, next_values = self._values(rollout, self.critics)
            k, lam = len(values), settings.gae_lambda
            targets = values + gae(signals[:k], values, next_values, terminated[:k], ended[:k], gamma, lam)
            estimates[:k] = targets - values
        return Advantages(estimates, targets)

    @torch.no_grad()
    def _values(self, rollout: Rollout, critics: Critics) -> tuple[Tensor, Tensor]:
        """(K, T, N) what the critics thought during collection of the observations acted on, and of what followed."""
        values, after = critics(rollout.obs), critics(rollout.last_obs)
        next_values = torch.cat([values[:, 1:], after[:, None]], dim=1)
        # The published code, which knows no images, shows the critics the raw last observation at a time-out.
        raw = self.config.method.bootstrap_raw_observation and self.config.network == "mlp"
        final_obs = rollout.final_obs_raw if raw else rollout.final_obs
        next_values[:, rollout.truncated & ~rollout.terminated] = critics(final_obs)
        return values, next_values

    def _batch(self, rollout: Rollout, advantages: Advantages) -> Batch:
        """All samples in a row; like the rollout, on the learner's device."""
        return Batch(
            obs=rollout.obs.flatten(0, 1),
            action=rollout.action.flatten(0, 1),
            log_prob=rollout.log_prob.flatten(),
            advantages=normalise(advantages.estimates),
            targets=None if advantages.targets is None else advantages.targets.flatten(1),
            worlds=0 if (every := self.config.halves_every) == 0 or self.epoch % every else rollout.obs.shape[1],
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
                " finite or no step was acceptable; look at the columns gradient_norm_* and kl in metrics.csv, and"
                " try a smaller target_kl or a larger cg_damping"
            )

    # ---- the whole state ---------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """All that the next epoch depends on."""
        return {
            "config": {name: plain(value) for name, value in self.config.settings().items()},
            "identities": self._identities,
            "policy": self.policy.state_dict(),
            "critics": None if self.critics is None else self.critics.state_dict(),
            "method": self.method.state_dict(),
            "collector": self.collector.state_dict(),
            "windows": self.windows.state_dict(),
            "baseline": self.baseline,
            **({} if self.off_policy is None else {"off_policy": self.off_policy.state_dict()}),
            "orders": self._orders.get_state(),
            "epoch": self.epoch,
            "skipped": self.skipped,
            "skipped_in_a_row": self.skipped_in_a_row,
            "faults": self.faults,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict` of a trainer with the same settings."""
        self.epoch = int(state["epoch"])
        if (worlds := len(state["collector"]["age"])) > self.config.worlds_in(self.epoch):
            raise UserError(f"the run has {worlds} worlds by now, and none can be taken away; leave grow_by as it is")
        if worlds != self.collector.pool.num_worlds:
            with within_memory(worlds):
                self.collector = self._collector(self._pool(worlds))
                self.collector.start()
        self.policy.load_state_dict(state["policy"])
        if self.critics is not None:
            self.critics.load_state_dict(state["critics"])
        self.method.load_state_dict(state["method"])
        self.collector.load_state_dict(state["collector"])
        self.windows.load_state_dict(state["windows"])
        baseline = state["baseline"]
        self.baseline = None if baseline is None else torch.as_tensor(baseline).to(self.config.device)
        if self.off_policy is not None:
            self.off_policy.load_state_dict(state["off_policy"])
        self._orders.set_state(torch.as_tensor(state["orders"]))
        if self._steady and self.epoch:
            self.policy.normaliser.learns = False
        self.skipped, self.skipped_in_a_row = int(state["skipped"]), int(state["skipped_in_a_row"])
        self.faults = int(state["faults"])


def _nobody_listens(hook: str, *what: Any) -> None:
    pass
