"""`[T, N]` storage of an epoch, and how it is collected."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sbtrpo.envs import Pool
from sbtrpo.nets.policy import Policy


@dataclass
class Rollout:
    """What T steps of N worlds gave. Observations are normalised as they were when acted on."""

    obs: Tensor
    """(T, N, obs_dim)"""
    action: Tensor
    """(T, N, action_dim), as sampled: neither clipped nor scaled; the number of a choice."""
    log_prob: Tensor
    """(T, N)"""
    reward: Tensor
    """(T, N)"""
    cost: Tensor
    """(T, N)"""
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
    """Finished episodes: step, world, return, cost, length, goals, cost components; one entry each."""
    faults: int = 0


def _numpy_network(policy: Policy) -> Callable[[NDArray[np.float32]], NDArray[np.float32]]:
    """The policy's network on NumPy arrays: for twenty observations at a time torch's overhead would be the cost."""
    weights = [tensor.detach().cpu().numpy() for tensor in policy.params[1:]]

    def mean(x: NDArray[np.float32]) -> NDArray[np.float32]:
        for weight, bias in zip(weights[:-2:2], weights[1:-2:2], strict=True):
            x = np.tanh(x @ weight.T + bias)
        out: NDArray[np.float32] = x @ weights[-2].T + weights[-1]
        return out

    return mean


class Collector:
    """Runs a policy in a pool, epoch after epoch; episodes go on across epochs."""

    def __init__(self, pool: Pool, policy: Policy, generator: torch.Generator) -> None:
        self.pool, self.policy, self.generator = pool, policy, generator
        self._age = np.zeros(pool.num_worlds, np.int64)
        self._obs: NDArray[np.float32] = np.zeros((pool.num_worlds, pool.task.observation_size), np.float32)

    def start(self) -> None:
        """Begin the first episodes. The published code resets twice, and counts both in its statistics."""
        for _ in range(2):
            self._obs = self._normalise(self.pool.reset()[0])

    def _normalise(self, raw: NDArray[np.float64]) -> NDArray[np.float32]:
        self.policy.normaliser.update(raw)
        return self.policy.normaliser(raw).astype(np.float32)

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
    def play(self, steps: int) -> Generator[NDArray[Any], tuple[Any, ...], Rollout]:
        """The same for whoever steps the pool: yields actions, (N, action_dim), and is sent what they led to."""
        pool, policy, head = self.pool, self.policy, self.policy.head
        n = pool.num_worlds
        log_std = policy.log_std.cpu()
        network, spread = _numpy_network(policy), log_std.numpy()
        noise = head.noise(torch, (steps, n), self.generator).numpy()
        obs = np.empty((steps, n, self._obs.shape[1]), np.float32)
        outputs = np.empty((steps, n, head.outputs), np.float32)
        action = np.empty((steps, n, head.action_size), np.float32)
        reward, cost = np.empty((2, steps, n), np.float32)
        terminated, truncated = np.zeros((2, steps, n), bool)
        time = np.empty((steps, n), np.float32)
        finals: list[NDArray[Any]] = []
        finals_raw: list[NDArray[Any]] = []
        episodes: list[dict[str, NDArray[Any]]] = []
        faults = pool.faults
        for t in range(steps):
            obs[t] = self._obs
            time[t] = self._age
            outputs[t] = network(self._obs)
            action[t] = head.sample(np, outputs[t], spread, noise[t])
            raw, reward[t], cost[t], terminated[t], truncated[t], info = yield policy.to_env(action[t])
            self._age += 1
            self._obs = self._normalise(raw)
            if "episode" in info:
                ended = np.flatnonzero(info["_episode"])
                episodes.append({"step": np.full(len(ended), t), "world": ended})
                episodes[-1] |= {name: values[ended] for name, values in info["episode"].items()}
                timed_out = info["final_obs"][truncated[t] & ~terminated[t]]
                finals_raw.append(timed_out)
                finals.append(policy.normaliser(timed_out))
                self._age[ended] = 0

        def stack(parts: list[NDArray[Any]]) -> Tensor:
            empty = np.zeros((0, self._obs.shape[1]))
            return torch.from_numpy(np.concatenate([empty, *parts]).astype(np.float32))

        names = list(episodes[0]) if episodes else []
        return Rollout(
            obs=torch.from_numpy(obs),
            action=torch.from_numpy(action),
            log_prob=head.log_prob(torch, torch.from_numpy(outputs), log_std, torch.from_numpy(action)),
            reward=torch.from_numpy(reward),
            cost=torch.from_numpy(cost),
            terminated=torch.from_numpy(terminated),
            truncated=torch.from_numpy(truncated),
            time=torch.from_numpy(time) / pool.spec.episode_length,
            last_obs=torch.from_numpy(self._obs.copy()),
            final_obs=stack(finals),
            final_obs_raw=stack(finals_raw),
            episodes={name: np.concatenate([part[name] for part in episodes]) for name in names},
            faults=pool.faults - faults,
        )

    def state_dict(self) -> dict[str, Any]:
        """The pool, what it showed last, and the noise generator."""
        return {
            "pool": self.pool.state_dict(),
            "obs": self._obs.copy(),
            "age": self._age.copy(),
            "generator": self.generator.get_state(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        self.pool.load_state_dict(state["pool"])
        self._obs = np.array(state["obs"])
        self._age = np.array(state["age"])
        self.generator.set_state(state["generator"])
        if not getattr(self.pool, "restores_exactly", True):  # a foreign simulator: new episodes have begun
            self._obs = self.policy.normaliser(self.pool.last_obs).astype(np.float32)
            self._age[:] = 0
