"""A pack on a GPU: its learners act in one recorded step, and what their updates solve is solved together.

What a learner draws, sees and learns is its own, as in a pack on the CPU. Batched products may round otherwise than
those of a learner by itself, and in one more way learners touch: the engine's room for contacts is that of all worlds
together, so that a step may be lost, as a counted fault, where another learner's worlds crowd.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import time
from collections.abc import Iterable, Sequence
from typing import cast

import torch
from torch import Tensor
from typing_extensions import override

from sbtrpo.algorithms.together import SharedRegion, together
from sbtrpo.algorithms.trust_region import TrustRegionMethod
from sbtrpo.benchmark.pack import Learnt, Outcome, SharedPool
from sbtrpo.envs.gpu import GpuPool
from sbtrpo.learning.device import DeviceCollector
from sbtrpo.learning.rollout import Rollout
from sbtrpo.learning.trainer import Epoch, Trainer
from sbtrpo.nets.policies import Policies
from sbtrpo.nets.policy import Policy


class PackCollector(DeviceCollector):
    """Runs several trainers' policies in a pool of all their worlds; each keeps the state that it has alone."""

    def __init__(self, pool: GpuPool, trainers: Sequence[Trainer]) -> None:
        self._members, config = [trainer.collector for trainer in trainers], trainers[0].config
        first, self._worlds = self._members[0], self._members[0].pool.num_worlds
        policies = cast(Policy, Policies([trainer.policy for trainer in trainers], self._worlds))
        final = any(trainer.critics is not None for trainer in trainers)
        super().__init__(pool, policies, first.generator, first.constraints, first.form, config.faulted, final)
        self._absent: set[int] = set()
        self._obs = torch.cat([member._obs for member in self._members])
        self._age = torch.cat([member._age for member in self._members])
        self._costs = torch.cat([member._costs for member in self._members], dim=1)

    def dismiss(self, learner: int) -> None:
        """Let a learner's worlds rest: it takes no more part."""
        self._absent.add(learner)
        for tensor in self.policy.params:
            tensor[learner] = 0

    def shares(self, steps: int) -> list[Outcome]:
        """What T steps of every world gave to each learner."""
        whole, outcomes = self.roll(steps), list[Outcome]()
        for k, member in enumerate(self._members):
            rows = slice(k * self._worlds, (k + 1) * self._worlds)
            member._obs, member._age, member._costs = self._obs[rows], self._age[rows], self._costs[:, rows]
            outcomes.append(None if k in self._absent else self._bearable(whole.of_worlds(rows), k, steps))
        return outcomes

    def _bearable(self, rollout: Rollout, learner: int, steps: int) -> Outcome:
        """A learner's rollout, unless too many of its worlds have faulted."""
        try:
            self._members[learner]._tolerance.step(rollout.faults, self.pool.last_error, steps)
        except Exception as error:
            return error
        return rollout

    @override
    def _draw(self, steps: int) -> Tensor:
        shape, head = (steps, self._worlds), self.policy.head
        noise = [head.noise(torch, shape, member.generator) for member in self._members]
        for k in self._absent:
            noise[k].zero_()
        return torch.cat(noise, dim=1)


class DevicePack(SharedPool):
    """Trainers on one pool on a device, which act and learn together from now on."""

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        rooms = [cast(GpuPool, trainer.collector.pool).room for trainer in trainers]
        super().__init__(trainers)
        pool = cast(GpuPool, self.pool)
        pool.make_room(*rooms)
        self._collector = PackCollector(pool, trainers)
        for trainer in trainers:
            if isinstance(trainer.method, TrustRegionMethod):
                trainer.method.region = SharedRegion

    @override
    def dissolve(self) -> None:
        super().dissolve()
        del self._collector
        gc.collect()  # what was recorded refers to itself, and holds the memory of an epoch

    @override
    def collect(self, trainers: Sequence[Trainer | None], steps: int) -> list[Outcome]:
        self._whole = None
        for k, trainer in enumerate(trainers):
            if trainer is None:
                self._collector.dismiss(k)
        outcomes = self._collector.shares(steps)
        for share, outcome in zip(self.shares, outcomes, strict=True):
            share.faults += outcome.faults if isinstance(outcome, Rollout) else 0
        return outcomes

    @override
    def learn(
        self, trainers: Sequence[Trainer | None], outcomes: Sequence[Outcome], seconds: float
    ) -> Iterable[Learnt]:
        """At once; of the time that this takes each learner has its share."""
        learning = {
            k: functools.partial(trainer.learn, outcome, seconds)
            for k, (trainer, outcome) in enumerate(zip(trainers, outcomes, strict=True))
            if trainer is not None and isinstance(outcome, Rollout)
        }
        started = time.perf_counter()
        learnt = dict(zip(learning, together(list(learning.values())), strict=True))
        spent = (time.perf_counter() - started) / max(1, len(learning))
        results: list[Learnt] = [outcome if isinstance(outcome, Exception) else None for outcome in outcomes]
        for k, result in learnt.items():
            trainer, results[k] = trainers[k], result
            if trainer is not None and isinstance(result, Epoch):
                results[k] = dataclasses.replace(result, timing=trainer.timing(seconds, spent))
        return results
