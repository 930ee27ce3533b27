"""Several learners on one pool: worlds [k * n, (k + 1) * n) belong to learner k.

A pool's worlds are independent of each other, and a pool's state is arrays with a row for each world. So the pools of
separate runs, laid side by side, are the state of one larger pool; each learner's rows of that are again the state of
a pool that it has alone. So runs in a pack give the numbers of separate runs, and their checkpoints are the same: a run
may leave a pack and go on alone, or the other way round.
"""

from __future__ import annotations

import itertools
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from sbtrpo.benchmark.columns import label
from sbtrpo.benchmark.states import LOG
from sbtrpo.config import TrainConfig
from sbtrpo.config.tasks import is_foreign
from sbtrpo.envs import Pool, make_pool
from sbtrpo.envs.beside import Nested, cut, join, shapes
from sbtrpo.learning.display import Display
from sbtrpo.learning.interrupts import interruptible
from sbtrpo.learning.recorder import Recorder
from sbtrpo.learning.rollout import Rollout
from sbtrpo.learning.trainer import Epoch, Trainer
from sbtrpo.learning.training import restore
from sbtrpo.runs.folder import RunFolder

if TYPE_CHECKING:
    from sbtrpo.envs.gpu import GpuPool

Result = tuple[Any, ...]
"""What a pool's step returns."""
Outcome = Rollout | Exception | None
"""A learner's rollout, or what went wrong; None if it did not act."""
Learnt = Epoch | Exception | None
"""What an epoch gave to a learner, or what went wrong; None if it had none."""


def pack_key(config: TrainConfig) -> tuple[Any, ...] | None:
    """Runs with the same key fit into one pack; None fits into none."""
    if is_foreign(config.task):  # an environment of another package, whose worlds cannot be saved and laid side by side
        return None
    of_the_process = config.threads, config.update_threads, config.device, config.engine
    # Steady statistics of a run that begins with a trained policy stand still from its first epoch on.
    statistics = config.statistics, config.statistics == "steady" and config.init_from is not None
    # On a GPU their networks are one batch, and so are their costs.
    alike = () if config.engine == "cpu" else (
        config.hidden, config.activation, config.normalise_observations, statistics, config.constraints, config.faulted
    )  # fmt: skip
    shape = config.num_envs, config.steps_per_epoch, config.epoch_growth, config.grow_by, config.total_steps
    return config.task_entry.identity, config.end_at_violation, *shape, *of_the_process, *alike


class Share:
    """A learner's worlds in a shared pool; to its collector, a pool.

    Args:
        shared: the pool.
        replaced: the pool that the learner had alone, whose place this takes.
        rows: its worlds.
    """

    def __init__(self, shared: SharedPool, replaced: Pool, rows: slice) -> None:
        self.num_worlds, self.task, self.spec = replaced.num_worlds, shared.pool.task, replaced.spec
        self.single_action_space = replaced.single_action_space
        self.single_observation_space = replaced.single_observation_space
        self.binary_costs = replaced.binary_costs
        self.faults, self.last_error = replaced.faults, replaced.last_error
        self._shared, self._rows = shared, rows

    def of_this_learner(self, result: Result) -> Result:
        """What a step of the shared pool gave to this learner's worlds."""
        obs, reward, cost, terminated, truncated, info = result
        ended = "_episode" in info and info["_episode"][self._rows].any()
        kept = {key: value for key, value in info.items() if ended or key not in _OF_ENDED}
        self.faults += int(np.count_nonzero(info["fault"][self._rows]))
        return (*(self._cut(x) for x in (obs, reward, cost, terminated, truncated)), self._cut(kept))

    def _cut(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self._cut(item) for key, item in value.items()}
        return value[self._rows].copy(order="K")  # as compact as a smaller pool's: sums depend on the layout

    @property
    def room(self) -> tuple[int, int]:
        """That of the shared pool, on a device."""
        return cast("GpuPool", self._shared.pool).room

    def wake(self) -> None:
        """Wake all sleeping bodies of this learner's worlds."""
        self._shared.wake(self._rows)

    def state_dict(self) -> Nested:
        """The state of a pool that the learner had alone."""
        return {**self._shared.state(self._rows), "faults": np.asarray(self.faults)}


_OF_ENDED = ("final_obs", "episode", "_final_obs", "_episode")
"""Entries of `info` that are there only in steps in which an episode ended."""


class SharedPool:
    """The worlds of several trainers, stepped together; their collectors act on their shares from now on."""

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        config, pools = trainers[0].config, [trainer.collector.pool for trainer in trainers]
        self._count = pools[0].num_worlds
        alike = len({pack_key(trainer.config) for trainer in trainers}) == len({type(pool) for pool in pools}) == 1
        if not alike or not isinstance(pools[0], Pool):
            raise ValueError("learners share a pool only on one task and device, alike in num_envs, steps and threads")
        self.pool = make_pool(
            config.task, len(pools) * self._count, 0, config.engine, config.threads,
            end_at_violation=config.end_at_violation,
        )  # fmt: skip
        self.pool.reset()
        states = [pool.state_dict() for pool in pools]
        self._small = shapes(states[0])
        self._whole: Nested | None = None
        """The state of all worlds since they last moved, once someone has asked for it."""
        self.pool.load_state_dict(join(states, self.pool.state_dict()))
        self.shares: list[Share] = []
        for k, trainer in enumerate(trainers):
            rows = slice(k * self._count, (k + 1) * self._count)
            self.shares.append(Share(self, trainer.collector.pool, rows))
            trainer.collector.pool = cast(Pool, self.shares[-1])

    def collect(self, trainers: Sequence[Trainer | None], steps: int) -> list[Outcome]:
        """A rollout for each trainer, or what went wrong with it; a trainer that is None has left, its worlds idle."""
        self._whole = None
        plays = [None if trainer is None else trainer.collector.play(steps) for trainer in trainers]
        outcomes: list[Outcome] = [None] * len(plays)
        shape = (self._count, *(self.pool.single_action_space.shape or ()))
        actions: list[NDArray[Any] | None] = [None] * len(plays)
        result: Result | None = None
        for _ in range(steps + 1):
            for k, play in enumerate(plays):
                if play is not None:
                    sent = None if result is None else self.shares[k].of_this_learner(result)
                    actions[k], outcomes[k] = _advance(play, sent)
                    plays[k] = None if outcomes[k] is not None else play
            if all(play is None for play in plays):
                break
            kind = next(action.dtype for action in actions if action is not None)
            of_all = [np.zeros(shape, kind) if action is None else action for action in actions]
            result = self.pool.step(np.concatenate(of_all))
        return outcomes

    def learn(
        self, trainers: Sequence[Trainer | None], outcomes: Sequence[Outcome], seconds: float
    ) -> Iterable[Learnt]:
        """What the trainers make of their rollouts, each of which took so many seconds."""
        return one_after_another(trainers, outcomes, seconds)

    def dissolve(self) -> None:
        """Let the worlds go: every learner has left, or has taken its own along."""
        self._whole = None
        del self.pool

    def wake(self, rows: slice) -> None:
        """Wake all sleeping bodies of these worlds."""
        self._whole = None
        self.pool.wake(np.arange(rows.start, rows.stop))

    def state(self, rows: slice) -> Nested:
        """The state of these worlds; that of all is taken once for all learners."""
        if self._whole is None:
            self._whole = self.pool.state_dict()
        return cut(self._whole, self._small, rows)


def one_after_another(
    trainers: Sequence[Trainer | None], outcomes: Sequence[Outcome], seconds: float
) -> Iterator[Learnt]:
    """What each trainer makes of its rollout, when its turn comes."""
    for trainer, outcome in zip(trainers, outcomes, strict=True):
        learnt: Learnt = None
        if trainer is not None:
            try:
                learnt = trainer.learn(outcome, seconds) if isinstance(outcome, Rollout) else outcome
            except Exception as error:
                learnt = error
        yield learnt


def _advance(
    play: Generator[NDArray[Any], Result, Rollout], sent: Result | None
) -> tuple[NDArray[Any] | None, Outcome]:
    """A learner's next action; or its rollout if that was the last, or what went wrong."""
    try:
        action = next(play) if sent is None else play.send(sent)
    except StopIteration as end:
        return None, end.value
    except Exception as error:
        return None, error
    if not np.isfinite(action).all():
        return None, ValueError("an action is not finite; check the policy's output")
    return action, None


# ---- training together -------------------------------------------------------------------------------------------


class Learner:
    """One run of a pack: its trainer, its folder and its log.

    It has `left` the pack once it has failed or its run is over.
    """

    def __init__(self, folder: RunFolder, log: TextIO) -> None:
        self.folder, self._log = folder, log
        self.failed = self.left = False
        config = folder.config
        title = f"{label(config)} on {config.task_entry.label}, seed {config.seed}, in a pack"
        self.display = Display(config, title, console=Console(file=log))
        self.display.say(title)
        self.trainer, notes = restore(folder)
        for note in [*config.notes(), *notes]:
            self.display.say(note)
        self.recorder = Recorder(self.trainer, folder, say=self.display.say)

    def record(self, epoch: Learnt) -> None:
        """Put down what happened."""
        if isinstance(epoch, Exception):
            raise epoch
        assert epoch is not None
        self.recorder.record(epoch)
        self.display.update(epoch.row, epoch.timing)
        self._log.flush()
        self.trainer.check()
        if self.recorder.over:
            self.close()

    def attempt(self, action: Callable[..., None], *arguments: Any) -> None:
        """Do something; if it goes wrong, this learner has failed and the others go on."""
        try:
            action(*arguments)
        except Exception:
            self.fail()

    def fail(self) -> None:
        """Put down the error at hand, and leave the pack."""
        self.failed = self.left = True
        traceback.print_exc(file=self._log)
        self._log.flush()
        self.folder.close()

    def close(self) -> None:
        """End the session."""
        self.left = True
        if sentence := self.recorder.alarm():
            self.display.warn(sentence)
        if ending := self.recorder.close():
            self.display.say(ending)
        for warning in self.recorder.warnings():
            self.display.say(warning)
        self._log.flush()


def train_pack(runs: Sequence[Path]) -> list[Path]:
    """Train the runs in these folders together to their ends, or to Ctrl-C; returns those that failed.

    Runs that stopped at different epochs, or are on different engines, form separate packs, one after the other.
    """
    failed: list[Path] = []
    with ExitStack() as stack, interruptible() as interrupted:
        learners: list[Learner] = []
        for run in runs:
            log = stack.enter_context((run / LOG).open("a", encoding="utf-8"))
            try:
                learners.append(Learner(stack.enter_context(RunFolder.open(run)), log))
            except Exception:
                traceback.print_exc(file=log)
                failed.append(run)
        learners.sort(key=_place)
        for _, alike in itertools.groupby(learners, key=_place):
            group = list(alike)
            try:
                if not interrupted.is_set():
                    _train_together(group, interrupted.is_set)
            except Exception:  # what none of them has done alone
                for learner in group:
                    if not learner.left:
                        learner.fail()
            failed += [learner.folder.path for learner in group if learner.failed]
    return failed


def _place(learner: Learner) -> tuple[int, str]:
    """What learners of one pack have in common, beside their settings."""
    return learner.trainer.epoch, learner.trainer.config.engine


def _shared_pool(trainers: Sequence[Trainer]) -> SharedPool:
    if trainers[0].config.engine == "cpu":
        return SharedPool(trainers)
    from sbtrpo.benchmark.pack_device import DevicePack  # needs the engine of that device

    return DevicePack(trainers)


def _collect(shared: SharedPool | None, trainers: Sequence[Trainer | None], steps: int) -> list[Outcome]:
    if shared is not None:
        return shared.collect(trainers, steps)
    try:
        return [None if trainer is None else trainer.collector.collect(steps) for trainer in trainers]
    except Exception as error:
        return [error]


def _train_together(learners: Sequence[Learner], interrupted: Callable[[], bool]) -> None:
    for learner in learners:
        if learner.recorder.over:  # a kill came before its end was written
            learner.attempt(learner.close)
    members, shared = list[Learner](), None
    while (active := [learner.trainer for learner in learners if not learner.left]) and not interrupted():
        for trainer in active:
            trainer.tell("on_epoch_begin")
        started = time.perf_counter()
        grown = [trainer.grow() for trainer in active]  # all of them, or none
        if any(grown) or not members:
            members, alone = [learner for learner in learners if not learner.left], shared is None and len(active) == 1
            if shared is not None:
                shared.dissolve()
            shared = None if alone else _shared_pool(active)
        trainers = [None if learner.left else learner.trainer for learner in members]
        outcomes = _collect(shared, trainers, active[0].steps_per_world)
        seconds = (time.perf_counter() - started) / len(active)  # each learner's share
        learnt = (one_after_another if shared is None else shared.learn)(trainers, outcomes, seconds)
        for learner, epoch in zip(members, learnt, strict=True):
            if not learner.left:
                learner.attempt(learner.record, epoch)
    for learner in learners:
        if not learner.left:
            learner.attempt(learner.close)
