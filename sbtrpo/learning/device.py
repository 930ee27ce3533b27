"""Collecting on a device: a whole step, from policy to storage, is recorded once and then replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from sbtrpo.envs.gpu import GpuPool
from sbtrpo.learning.rollout import Collector, Endings, Rollout, Storage


class DeviceEndings:
    """What all worlds would report of their episodes, in every step; those that ended are picked out at the end."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._kept: dict[str, Tensor] = {}

    def keep(self, t: Tensor, columns: Mapping[str, Tensor]) -> None:
        """Take down step t, for all worlds."""
        for name, values in columns.items():
            if name not in self._kept:
                self._kept[name] = values.new_zeros((self._steps, *values.shape))
            self._kept[name].index_copy_(0, t, values[None])

    def pick(self, ended: Tensor, cut: Tensor) -> Endings:
        """Those of the episodes that ended, (T, N), and the last observations of those that were cut.

        This waits for the device.
        """
        picked, columns = Endings(), dict(self._kept)
        if "final_obs" in columns:
            picked.final_obs.append(columns.pop("final_obs")[cut])
            picked.final_obs_raw.append(columns.pop("final_obs_raw")[cut])
        step, world = ended.nonzero(as_tuple=True)
        picked.add({"step": step, "world": world, **{name: values[step, world] for name, values in columns.items()}})
        return picked


class DeviceCollector(Collector):
    """Runs a policy in a pool on a device, which nothing waits for but the end of an epoch.

    A rollout's tensors are written anew in the next epoch.
    """

    on_host = False
    pool: GpuPool
    _storage: Storage | None = None
    _endings: DeviceEndings
    _noise: Tensor
    _learns: bool
    """Whether statistics of observations grow in what was recorded."""

    @override
    def collect(self, steps: int) -> Rollout:
        rollout = self.roll(steps)
        self._tolerance.step(rollout.faults, self.pool.last_error, steps)
        return rollout

    def roll(self, steps: int) -> Rollout:
        """T steps of every world, however many of them fault."""
        if self._storage is None or (len(self._storage.obs), self._learns) != (steps, self.policy.normaliser.learns):
            self._prepare(steps)
        assert self._storage is not None
        pool, storage, before = self.pool, self._storage, self.pool.faults
        self._noise.copy_(self._draw(steps))
        self._t.zero_()
        for _ in range(steps):
            self._advance()
        faults = pool.attend() - before
        endings = self._endings.pick(storage.terminated | storage.truncated, storage.truncated & ~storage.terminated)
        pool.wake()  # at the end of every epoch, saved or not: who sleeps cannot be restored
        return self._rollout(storage, endings, faults)

    def _draw(self, steps: int) -> Tensor:
        """(T, N, ...) the actions' noise."""
        noise: Tensor = self.policy.head.noise(torch, (steps, self.pool.num_worlds), self.generator)
        return noise

    @override
    def go_on_from(self, before: Collector) -> None:
        assert isinstance(before, DeviceCollector)
        self.pool.make_room(before.pool.room)
        super().go_on_from(before)
        before._give_up()

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._storage = None  # what was recorded works in other memory

    def _prepare(self, steps: int) -> None:
        self._give_up()
        n, head = self.pool.num_worlds, self.policy.head
        self._learns = self.policy.normaliser.learns
        self._storage = Storage(self.form, steps, n, 1 + self._count, self.policy)
        self._endings = DeviceEndings(steps)
        self._noise = self.form.zeros((steps, n, head.action_size))
        self._t = torch.zeros(1, dtype=torch.int64, device=self._noise.device)
        self._obs = self._obs.clone()
        self._advance: Callable[[], Any] = self.pool.recorded(self._step)

    def _give_up(self) -> None:
        """Let go of epochs of another kind, whose memory is needed."""
        if self._storage is not None:
            del self._storage, self._endings, self._noise, self._advance

    @torch.no_grad()
    def _step(self) -> None:
        """Step t of an epoch. All that lasts is written in place, where the next step finds it."""
        assert self._storage is not None
        storage, policy, t = self._storage, self.policy, self._t
        outputs = policy.mean(self._obs)
        action = policy.head.sample(torch, outputs, policy.log_std, self._noise.index_select(0, t)[0])
        before = {"obs": self._obs, "time": self._age.to(storage.time.dtype), "outputs": outputs, "action": action}
        for name, values in before.items():
            getattr(storage, name).index_copy_(0, t, values[None])
        result = self.pool.advance(policy.to_env(action))
        raw, signals, terminated, truncated = self._receive(result)
        storage.terminated.index_copy_(0, t, terminated[None])
        storage.truncated.index_copy_(0, t, truncated[None])
        together = torch.stack([self.form.array(values) for values in signals])
        storage.signals.index_copy_(1, t, together[:, None])
        self._age += 1
        if self._told_apart:
            self._costs += self.form.double(together[1:])
        self._obs.copy_(self._normalise(raw))
        self._keep(result[-1])
        self._t += 1

    def _keep(self, info: Mapping[str, Any]) -> None:
        """Take down what the worlds report, where episodes ended."""
        ended, columns = info["_episode"], dict(info["episode"])
        columns["faulted"] = info["fault"]
        if self._faults_cost:
            columns["cost"] = columns["cost"] + columns["faulted"]
        if self.constraints is not None and self._told_apart:
            columns |= {f"constraint_{name}": self._costs[k] for k, name in enumerate(self.constraints.names)}
        if self._final:
            columns["final_obs_raw"] = self.form.array(info["final_obs"])
            columns["final_obs"] = self.form.array(self.policy.normaliser(self.form.double(info["final_obs"])))
        self._endings.keep(self._t, columns)
        self._costs.masked_fill_(ended, 0)
        self._age.masked_fill_(ended, 0)
