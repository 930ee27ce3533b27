"""`[T, N]` storage of an epoch, and how it is collected."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sbtrpo.config.run import Faulted
from sbtrpo.envs import Pool
from sbtrpo.envs.beside import cut, join, shapes
from sbtrpo.envs.faults import Tolerance
from sbtrpo.nets.distributions import Array
from sbtrpo.nets.forms import Form, NumpyForm, TorchForm, acting_form, to_numpy
from sbtrpo.nets.policy import Policy

Result: TypeAlias = tuple[Any, ...]
"""What a pool's step returns: observations, reward, cost, terminated, truncated, info."""


TOTAL_ONLY = ("cost",)
"""The names of constraints where the total cost is the only one."""


@dataclass
class Rollout:
    """What T steps of N worlds gave, on the policy's device. Observations are normalised as they were when acted on."""

    obs: Tensor
    """(T, N, obs_dim)"""
    action: Tensor
    """(T, N, action_dim), as sampled: neither clipped nor scaled; the number of a choice."""
    log_prob: Tensor
    """(T, N)"""
    signals: Tensor
    """(1 + C, T, N): reward, then each constraint's cost."""
    terminated: Tensor
    """(T, N) bool"""
    truncated: Tensor
    """(T, N) bool"""
    time: Tensor
    """(T, N) steps since the episode began, as a share of its greatest length."""
    last_obs: Tensor
    """(N, obs_dim) what follows the last step."""
    final_obs: Tensor
    """(E, obs_dim) last observations of the truncated episodes, normalised (E of them, in the order of `truncated`)."""
    final_obs_raw: Tensor
    """(E, obs_dim) the same as the environment gave them."""
    episodes: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Finished episodes: step, world, return, cost, length, goals, cost components, faulted; where constraints are
    not the total cost also `constraint_<name>`, the cost of each; one entry each."""
    faults: int = 0

    @property
    def faulted(self) -> NDArray[np.bool_]:
        """Which of the finished episodes a fault has cut."""
        return self.episodes.get("faulted", np.zeros(0, np.bool_))

    @property
    def reward(self) -> Tensor:
        """(T, N)"""
        return self.signals[0]

    @property
    def cost(self) -> Tensor:
        """(T, N), for those who know of one constraint only."""
        if len(self.signals) != 2:
            raise ValueError(
                f"this rollout has {len(self.signals) - 1} constraints and no single cost; use signals[1:], one each"
            )
        return self.signals[1]

    def of_worlds(self, worlds: slice) -> Rollout:
        """What these worlds gave; its large tensors are views."""
        episodes, final_obs, final_obs_raw = self.episodes, self.final_obs, self.final_obs_raw
        ended = (episodes["world"] >= worlds.start) & (episodes["world"] < worlds.stop)
        episodes = {name: values[ended] for name, values in episodes.items()}
        episodes["world"] = episodes["world"] - worlds.start
        if len(final_obs):
            world = (self.truncated & ~self.terminated).nonzero(as_tuple=True)[1]
            cut = (world >= worlds.start) & (world < worlds.stop)
            final_obs, final_obs_raw = final_obs[cut], final_obs_raw[cut]
        over_time = {
            name: getattr(self, name)[:, worlds]
            for name in ("obs", "action", "log_prob", "terminated", "truncated", "time")
        }
        return Rollout(
            signals=self.signals[:, :, worlds],
            last_obs=self.last_obs[worlds],
            final_obs=final_obs,
            final_obs_raw=final_obs_raw,
            episodes=episodes,
            faults=int(episodes["faulted"].sum()),
            **over_time,
        )


class Constraints(Protocol):
    """What costs a collector tells apart."""

    @property
    def names(self) -> tuple[str, ...]:
        """One for each constraint."""

    def costs(self, cost: Array, info: Mapping[str, Any]) -> Sequence[Array]:
        """Each constraint's cost in a step, (N,), from the cost and the info that the pool's step returned."""


class Storage:
    """The arrays of a rollout in the making, all of them where the policy acts from the start."""

    def __init__(self, form: Form, steps: int, worlds: int, signals: int, policy: Policy) -> None:
        head, shape = policy.head, (steps, worlds)
        self.obs = form.zeros((*shape, policy.observation_size))
        self.outputs = form.zeros((*shape, head.outputs))
        self.action = form.zeros((*shape, head.action_size))
        self.signals = form.zeros((signals, *shape))
        self.terminated, self.truncated = form.zeros((2, *shape), bool)
        self.time = form.zeros(shape)


class Endings:
    """Finished episodes and their last observations, in the pool's own arrays until the end."""

    def __init__(self) -> None:
        self._columns: dict[str, list[Array]] = {}
        self.final_obs: list[Array] = []
        self.final_obs_raw: list[Array] = []

    def add(self, columns: Mapping[str, Array]) -> None:
        """The episodes that ended in one step, one entry each."""
        for name, values in columns.items():
            self._columns.setdefault(name, []).append(values)

    def episodes(self) -> dict[str, NDArray[Any]]:
        """All of them, on the host."""
        return {
            name: torch.cat(values).cpu().numpy() if isinstance(values[0], Tensor) else np.concatenate(values)
            for name, values in self._columns.items()
        }


class Collector:
    """Runs a policy in a pool, epoch after epoch; episodes go on across epochs.

    Args:
        pool: of worlds. From one that returns NumPy arrays, few worlds are acted in on the host, and the rollout goes
            to the device as a whole; with many worlds one block of numbers goes there and one comes back in every step.
            One that returns tensors keeps all but the finished episodes there.
        policy: whose statistics of observations grow with what it sees.
        generator: of the actions' noise, on the CPU: on every device the same actions follow, but for rounding.
        constraints: what costs are told apart; the pool's cost alone if left out.
        form: of the policy's arrays; by the number of worlds, and by where they are, if left out.
        faulted: "unsafe": a faulted step costs 1 in every constraint, and so does its episode; "apart": nothing.
        final: whether last observations of truncated episodes are wanted.
    """

    on_host = True
    """Whether a pool's arrays are NumPy's, as long as it has shown none."""

    def __init__(
        self,
        pool: Pool,
        policy: Policy,
        generator: torch.Generator,
        constraints: Constraints | None = None,
        form: Form | None = None,
        faulted: Faulted = "unsafe",
        final: bool = True,
    ) -> None:
        self.pool, self.policy, self.generator, self.constraints = pool, policy, generator, constraints
        self._count = 1 if constraints is None else len(constraints.names)
        self._told_apart = constraints is not None and constraints.names != TOTAL_ONLY
        self._faults_cost, self._tolerance = faulted == "unsafe", Tolerance(pool.num_worlds)
        self._final = final
        self._pool_device: torch.device | None = None
        """Where the pool's tensors are; None while it gives NumPy arrays."""
        weights = sum(tensor.numel() for tensor in policy.params)
        self._take(form or acting_form(policy.device, pool.num_worlds, self.on_host, weights))

    def _take(self, form: Form) -> None:
        self.form, n = form, self.pool.num_worlds
        self.policy.use(form)
        self._age = form.zeros((n,), int)
        self._obs = form.zeros((n, self.pool.task.observation_size))
        self._costs = form.double(form.zeros((self._count, n)))
        """Of the running episodes, for each constraint; used where they are not the total cost."""

    def start(self) -> None:
        """Begin the first episodes. The published code resets twice, and counts both in its statistics."""
        for _ in range(2):
            self._obs = self._normalise(self._begin())

    def go_on_from(self, before: Collector) -> None:
        """Go on with the worlds of a collector that has fewer; the others begin their first episodes."""
        state, worlds = before.state_dict(), before.pool.num_worlds
        begun, whole = self._begin()[worlds:], self.pool.state_dict()
        others = cut(whole, shapes(state["pool"]), slice(worlds, None))
        joined: dict[str, Any] = {
            "pool": join([state["pool"], others], whole),
            "obs": np.concatenate([state["obs"], to_numpy(self._normalise(begun))]),
            "age": np.concatenate([state["age"], to_numpy(self._age[worlds:])]),
        }
        if self._told_apart:
            costs = [state["constraint_costs"], to_numpy(self._costs[:, worlds:])]
            joined["constraint_costs"] = np.concatenate(costs, axis=1)
        self.load_state_dict(state | joined)

    def _begin(self) -> Array:
        """Reset all worlds; what they show."""
        raw = self.pool.reset()[0]
        if isinstance(raw, Tensor):
            self._pool_device = raw.device
            if isinstance(self.form, NumpyForm):
                self._take(TorchForm(self.policy.device))
        return self.form.double(raw)

    def _normalise(self, raw: Array) -> Array:
        self.policy.normaliser.update(raw)
        return self.form.array(self.policy.normaliser(raw))

    def rescale(self, ratio: Array, shift: Array) -> None:
        """Go on where a normalised observation x is from now on (x - shift) / ratio: (obs_dim,)."""
        double = self.form.double
        self._obs[:] = self.form.array((double(self._obs) - double(shift)) / double(ratio))

    def collect(self, steps: int) -> Rollout:
        """T steps of every world."""
        play = self.play(steps)
        action = next(play)
        while True:
            try:
                action = play.send(self.pool.step(action))
            except StopIteration as end:
                rollout: Rollout = end.value
                return rollout

    @torch.no_grad()
    def play(self, steps: int) -> Generator[Array, Result, Rollout]:
        """The same for whoever steps the pool: yields actions, (N, action_dim), and is sent what they led to."""
        form, policy, n = self.form, self.policy, self.pool.num_worlds
        head, network, spread = policy.head, _network(policy, form), form.array(policy.log_std)
        noise = form.array(head.noise(torch, (steps, n), self.generator))
        storage, endings, faults = Storage(form, steps, n, 1 + self._count, policy), Endings(), self.pool.faults
        for t in range(steps):
            storage.obs[t] = self._obs
            storage.time[t] = self._age
            storage.outputs[t] = network(self._obs)
            storage.action[t] = head.sample(form.xp, storage.outputs[t], spread, noise[t])
            before = self.pool.faults
            result = yield self._to_pool(policy.to_env(storage.action[t]))
            self._tolerance.step(self.pool.faults - before, self.pool.last_error)
            raw, signals, storage.terminated[t], storage.truncated[t] = self._receive(result)
            for k, values in enumerate(signals):
                storage.signals[k, t] = values
                if k and self._told_apart:
                    self._costs[k - 1] += form.double(values)
            self._age += 1
            self._obs = self._normalise(raw)
            if "episode" in result[-1]:
                self._end(t, result, endings)
        self.pool.wake()  # at the end of every epoch, saved or not: who sleeps cannot be restored
        return self._rollout(storage, endings, self.pool.faults - faults)

    def _to_pool(self, action: Array) -> Array:
        """Actions where the pool takes them."""
        return to_numpy(action) if self._pool_device is None else action.to(self._pool_device)

    def _receive(self, result: Result) -> tuple[Array, Sequence[Array], Array, Array]:
        """Raw observations, signals, `terminated` and `truncated` of a step, in this form.

        From a pool of NumPy arrays to a device they travel as one block.
        """
        raw, reward, cost, terminated, truncated, info = result
        costs = [cost] if self.constraints is None else self.constraints.costs(cost, info)
        if self._faults_cost:
            costs = [values + info["fault"] for values in costs]
        if isinstance(self.form, NumpyForm) or isinstance(raw, Tensor):
            return self.form.double(raw), [reward, *costs], terminated, truncated
        block = self.form.double(np.column_stack([raw, reward, *costs, terminated, truncated]))
        *signals, terminated, truncated = block.T[raw.shape[1] :]
        return block[:, : raw.shape[1]], signals, terminated, truncated

    def _end(self, t: int, result: Result, endings: Endings) -> None:
        """Take down the episodes that ended in a step."""
        _, _, _, terminated, truncated, info = result
        world = info["_episode"]
        ended = world.nonzero(as_tuple=True)[0] if isinstance(world, Tensor) else np.flatnonzero(world)
        columns = {"step": np.full(len(ended), t), "world": ended}
        columns |= {name: values[ended] for name, values in info["episode"].items()}
        columns["faulted"] = info["fault"][ended]
        if self._faults_cost:
            columns["cost"] = columns["cost"] + columns["faulted"]
        if self.constraints is not None and self._told_apart:
            names = [f"constraint_{name}" for name in self.constraints.names]
            columns |= dict(zip(names, self._costs[:, ended], strict=True))
            self._costs[:, ended] = 0
        endings.add(columns)
        timed_out = self.form.double(info["final_obs"][truncated & ~terminated])
        endings.final_obs_raw.append(timed_out)
        endings.final_obs.append(self.policy.normaliser(timed_out))
        self._age[ended] = 0

    def _rollout(self, storage: Storage, endings: Endings, faults: int) -> Rollout:
        form, head = self.form, self.policy.head
        none = form.double(form.zeros((0, self._obs.shape[1])))
        outputs, action = form.tensor(storage.outputs), form.tensor(storage.action)
        return Rollout(
            obs=form.tensor(storage.obs),
            action=action,
            log_prob=head.log_prob(torch, outputs, form.tensor(form.array(self.policy.log_std)), action),
            signals=form.tensor(storage.signals),
            terminated=form.tensor(storage.terminated),
            truncated=form.tensor(storage.truncated),
            time=form.tensor(storage.time) / self.pool.spec.episode_length,
            last_obs=form.tensor(self._obs).clone(),
            final_obs=form.tensor(form.array(form.join([none, *endings.final_obs]))),
            final_obs_raw=form.tensor(form.array(form.join([none, *endings.final_obs_raw]))),
            episodes=endings.episodes(),
            faults=faults,
        )

    def state_dict(self) -> dict[str, Any]:
        """The pool, what it showed last, the noise generator, and what is counted over running episodes."""
        several = {"constraint_costs": to_numpy(self._costs).copy()} if self._told_apart else {}
        debt = {"fault_debt": self._tolerance.debt} if self._tolerance.debt else {}
        return {
            "pool": self.pool.state_dict(),
            "obs": to_numpy(self._obs).copy(),
            "age": to_numpy(self._age).copy(),
            "generator": self.generator.get_state(),
            **several,
            **debt,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`, of whatever form."""
        self.pool.load_state_dict(state["pool"])
        self._obs = self.form.array(np.array(state["obs"]))
        self._age[:] = self.form.double(np.array(state["age"]))
        self.generator.set_state(state["generator"])
        self._tolerance.debt = float(state.get("fault_debt", 0.0))
        if self._told_apart:
            self._costs = self.form.double(np.array(state["constraint_costs"]))
        if not getattr(self.pool, "restores_exactly", True):  # a foreign simulator: new episodes have begun
            self._obs = self.form.array(self.policy.normaliser(self.form.double(self.pool.last_obs)))
            self._age[:] = 0
            self._costs[:] = 0


def _network(policy: Policy, form: Form) -> Callable[[Array], Array]:
    """The policy's network on a form's arrays."""
    if not isinstance(form, NumpyForm):
        return policy.mean
    if policy.design.image is not None:
        return lambda x: form.array(policy.mean(form.tensor(x)))
    activation = policy.design.function.on_arrays
    weights = [form.array(tensor) for tensor in policy.params[1:]]

    def mean(x: NDArray[Any]) -> NDArray[Any]:
        for weight, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
            x = activation(x @ weight.T + bias)
        outputs: NDArray[Any] = x @ weights[-2].T + weights[-1]
        return outputs

    return mean
