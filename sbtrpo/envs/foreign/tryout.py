"""An environment played with random actions, and what that shows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sbtrpo.config.tasks import is_foreign
from sbtrpo.envs.foreign.costs import CostReader, cost_keys, cost_reader
from sbtrpo.envs.foreign.environment import (
    FORMS,
    UnfitEnvironment,
    flat_action_space,
    flat_observation_space,
    flattened,
    image_shape,
    make_environment,
    number,
    one_line,
    time_limit,
)
from sbtrpo.envs.foreign.findings import CheckFinding, Severity
from sbtrpo.envs.gym import SafetyEnv
from sbtrpo.envs.layout import LayoutError
from sbtrpo.envs.physics.cpu import available_cores
from sbtrpo.envs.registry import get_spec
from sbtrpo.errors import users_traceback

Environment = gymnasium.Env[Any, Any]

UNLIMITED_TRIAL = 1000
"""Steps of an episode in the trial of an environment without a time limit."""
SLOW = 200.0
"""Steps a second in one process below which training takes days."""
PAPER_STEPS = 2e7
TRACE_STEPS = 25
LEAST_STEPS = 10
"""Fewer say nothing about costs and speed."""


class Tryout:
    """One environment, stepped in this process.

    `tell` hears of each finding at once, because the next step may end the process.
    """

    def __init__(self, task: str, seed: int, tell: Callable[[CheckFinding], None] | None = None) -> None:
        self.task, self.seed, self._tell = task, seed, tell
        self.findings: dict[str, CheckFinding] = {}
        """By kind; of each kind only the first one counts."""
        self.rewards: list[float] = []
        self.returns: list[float] = []
        """Of whole episodes."""
        self.costs: list[float] = []
        self.components: list[list[float]] = []
        self.reader: CostReader | None = None
        self.step_seconds, self.reset_seconds, self.resets = 0.0, 0.0, 0

    def run(self, seconds: float) -> list[CheckFinding]:
        """Play, and return what there is to say."""
        try:
            env, limit = self._make_environment()
            flat_observation_space(self.task, env.observation_space)
            flat_action_space(self.task, env.action_space)
        except (UnfitEnvironment, LayoutError) as error:
            self._refuse(error)
            return list(self.findings.values())
        for note in flattened(env.observation_space, env.action_space):
            self.add(note, "note", note)
        self._inspect_images(env.observation_space)
        if limit is None:
            self.add(
                "limit", "error", "there is no time limit: episodes may never end",
                "register the environment with max_episode_steps=...",
            )  # fmt: skip
        env.action_space.seed(self.seed)
        try:
            self._episodes(env, limit or UNLIMITED_TRIAL, seconds)
            if not any(finding.severity == "error" for finding in self.findings.values()):
                self._check_seeding(env)
        except (UnfitEnvironment, LayoutError) as error:
            self._refuse(error)
        except Exception as error:
            self.add(
                "raised", "error", f"after {len(self.costs)} steps it raised {one_line(error)}",
                "the world would be reset and counted as a fault, but it should not happen", users_traceback(error),
            )  # fmt: skip
        finally:
            env.close()
        self._summarise()
        return list(self.findings.values())

    def _refuse(self, error: Exception) -> None:
        trace = "\n".join(getattr(error, "__notes__", ()))
        self.add("unfit", "error", str(error).removeprefix(f"{self.task}: "), trace=trace)

    def add(self, kind: str, severity: Severity, message: str, remedy: str = "", trace: str = "") -> None:
        """Add a finding, if it is the first of its kind."""
        if kind not in self.findings:
            self.findings[kind] = CheckFinding(severity, message, remedy, trace)
            if self._tell is not None:
                self._tell(self.findings[kind])

    def _make_environment(self) -> tuple[Environment, int | None]:
        if is_foreign(self.task):
            env = make_environment(self.task)
            return env, time_limit(env)
        task_id = self.task.removeprefix("sbtrpo:")
        return SafetyEnv(task_id), get_spec(task_id).episode_length

    # ---- episodes with random actions --------------------------------------------------------------------------

    def _episodes(self, env: Environment, limit: int, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while True:
            self._reset(env, self.seed + self.resets)
            for step in range(1, limit + 1):
                began = time.perf_counter()
                result = env.step(env.action_space.sample())
                now = time.perf_counter()
                self.step_seconds += now - began
                ended = self._inspect_step(env, result, f"in step {step} of an episode")
                if now > until:
                    return
                if ended:
                    break
            self.returns.append(sum(self.rewards[-step:]))

    def _reset(self, env: Environment, seed: int) -> Any:
        began = time.perf_counter()
        result = env.reset(seed=seed)
        self.reset_seconds += time.perf_counter() - began
        self.resets += 1
        if not isinstance(result, tuple) or len(result) != 2:
            raise UnfitEnvironment("reset must take a seed and return (obs, info)")
        self._inspect_observation(env, result[0], "after reset")
        return result[0]

    def _inspect_step(self, env: Environment, result: Any, when: str) -> bool:
        """Look at what a step returned; returns whether it ended the episode."""
        if not isinstance(result, tuple) or len(result) not in (5, 6):
            raise UnfitEnvironment(f"step must return {FORMS}, got {result!r:.80}")
        obs, reward, *cost_of_six, terminated, truncated, info = result
        self._inspect_observation(env, obs, when)
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool | np.bool_):
                self.add(name, "warning", f"{name} is a {type(flag).__name__}", "make it a bool")
        value = number(self.task, "reward", reward)
        if not np.isfinite(value):
            self.add("reward", "error", f"the reward was {value} {when}", "find what divides by 0 or overflows")
        self.rewards.append(value)
        cost = cost_of_six[0] if cost_of_six else info.get("cost")
        self.costs.append(self._inspect_costs(env, cost, info, when))
        return bool(terminated or truncated)

    def _inspect_costs(self, env: Environment, cost: Any, info: Mapping[str, Any], when: str) -> float:
        """Look at the cost and its components; returns the total cost."""
        entries = cost_keys(info) if self.reader is None else self.reader.form == "entries"
        if cost is None and not entries:
            self.add(
                "no cost", "error", f'no cost {when}: info has no "cost"',
                'put info["cost"] into every step, 0.0 where nothing is violated',
            )  # fmt: skip
            return 0.0
        if self.reader is None:
            self.reader = cost_reader(self.task, env, cost, info)
        total, components = self.reader.read(self.task, cost, info)
        self.components.append(components)
        for name, value in self.reader.counted(total, components).items():
            self._inspect_cost("the cost" if name == "cost" else name, value, when)
        if self.reader.form == "number":
            for name, value in zip(self.reader.names, components, strict=True):
                self._inspect_component(name, value, when)
        self._inspect_unread(self.reader, info, when)
        return total

    def _inspect_cost(self, name: str, value: float, when: str) -> None:
        if not np.isfinite(value):
            self.add("cost", "error", f"{name} was {value} {when}", "find what divides by 0 or overflows")
        elif value < 0:
            self.add(
                "negative", "error", f"{name} was {value:g} {when}",
                "costs are >= 0, and 0 means safe; what is good belongs into the reward",
            )  # fmt: skip

    def _inspect_component(self, name: str, value: float, when: str) -> None:
        """Look at a component beside the cost. It counts only where it is a constraint."""
        if not np.isfinite(value):
            self.add("component", "error", f"{name} was {value} {when}", "find what divides by 0 or overflows")
        elif value < 0:
            self.add(
                "negative component", "warning", f"{name} was {value:g} {when}",
                "make it >= 0 if it is to be a constraint; what is good belongs into the reward",
            )  # fmt: skip

    def _inspect_unread(self, reader: CostReader, info: Mapping[str, Any], when: str) -> None:
        """Look for numbers whose names are those of components, but which nobody reads."""
        unread = [key for key in cost_keys(info) if key not in reader.names and np.ndim(info[key]) == 0]
        if not unread:
            return
        if reader.form == "vector":
            reason, remedy = "is not read, because the cost is a vector", "make it an entry of the vector if it counts"
        else:
            reason, remedy = f"came first {when}, and is not read", "give every cost component in every step"
        self.add("unread", "warning", f'info["{unread[0]}"] {reason}', remedy)

    def _inspect_images(self, space: spaces.Space[Any]) -> None:
        """Say what becomes of images."""
        if shape := image_shape(space):
            self.add(
                "image", "warning", f"observations are images of {shape}, and flattened every pixel stands by itself",
                "train with --network cnn",
            )  # fmt: skip
        elif isinstance(space, spaces.Dict | spaces.Tuple):
            parts = space.values() if isinstance(space, spaces.Dict) else space
            if shape := next(filter(None, map(image_shape, parts)), None):
                self.add(
                    "image", "warning", f"a part of the observation is an image of {shape}, which is flattened",
                    "make the image the whole observation, and train with --network cnn",
                )  # fmt: skip

    def _inspect_observation(self, env: Environment, obs: Any, when: str) -> None:
        space = env.observation_space
        flat = _flatten_or_none(space, obs)
        if flat is None or flat.shape != flat_observation_space(self.task, space).shape:
            self.add(
                "shape", "error", f"an observation {when} has another form than the observation space says",
                f"correct the space, {space}, or the observation",
            )  # fmt: skip
        elif not np.isfinite(flat).all():
            where = int(np.flatnonzero(~np.isfinite(flat))[0])
            self.add(
                "nan", "error", f"entry {where} of the observation was {flat[where]} {when}",
                "find what divides by 0 or overflows",
            )  # fmt: skip
        elif not space.contains(obs):
            self.add(
                "space", "warning", f"an observation {when} {_how_outside(space, obs)}", "correct the observation space"
            )

    # ---- what the numbers say ----------------------------------------------------------------------------------

    def _check_seeding(self, env: Environment) -> None:
        first, again = self._trace(env, self.seed), self._trace(env, self.seed)
        if not _equal_traces(first, again):
            self.add(
                "seed", "warning", "reset does not respect its seed: two episodes with one seed differ",
                "call super().reset(seed=seed) and draw every random number from self.np_random",
            )  # fmt: skip
            return
        other = self._make_environment()[0]
        try:
            if not _equal_traces(first, self._trace(other, self.seed)):
                self.add(
                    "seed", "warning", "two environments with one seed differ: something is random beside the seed",
                    "draw in reset what is drawn in the constructor, and share nothing between environments",
                )  # fmt: skip
        finally:
            other.close()
        if _equal_traces(first, self._trace(env, self.seed + 1)):
            self.add(
                "alike", "note", "episodes of different seeds are alike",
                "fine if nothing is meant to be random; otherwise draw from self.np_random",
            )  # fmt: skip

    def _trace(self, env: Environment, seed: int) -> list[NDArray[Any] | None]:
        """The first observations and rewards of a seeded episode, always with the same actions."""
        space = env.action_space
        space.seed(seed)
        trace = [_flatten_or_none(env.observation_space, self._reset(env, seed))]
        space.seed(self.seed)
        for _ in range(TRACE_STEPS):
            obs, reward, *_, terminated, truncated, _ = env.step(space.sample())
            trace += [_flatten_or_none(env.observation_space, obs), np.asarray(reward)]
            if terminated or truncated:
                break
        return trace

    def _summarise(self) -> None:
        steps = len(self.costs)
        if steps < LEAST_STEPS:
            return
        if "no cost" not in self.findings:
            self._summarise_costs(np.asarray(self.costs))
            self._summarise_components(np.asarray(self.components))
        if np.ptp(self.rewards) == 0:
            self.add("flat", "note", f"the reward was {self.rewards[0]:g} in all {steps} steps with random actions")
        if self.returns and (mean := float(np.mean(self.returns))) < 0:
            self.add(
                "below zero", "note", f"episodes with random actions return {mean:g} on average",
                "below 0 every violation raises the safe reward, which counts unsafe episodes as 0: judge by the safety"
                " probability first, or add a constant to the reward of each step",
            )  # fmt: skip
        rate, reset = steps / self.step_seconds, self.reset_seconds / max(self.resets, 1)
        cores = available_cores()
        hours = PAPER_STEPS / rate / cores / 3600
        how_long = f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.0f} minutes"
        self.add(
            "speed",
            "warning" if rate < SLOW else "note",
            f"speed: {rate:,.0f} steps a second in one process, {1000 * reset:.1f} ms a reset; 20 million steps take"
            f" about {how_long} on the {cores} cores here",
            "train for fewer steps (--total-steps), on more cores, or make step faster" if rate < SLOW else "",
        )

    def _summarise_costs(self, costs: NDArray[Any]) -> None:
        share = float((costs > 0).mean())
        if share == 0:
            self.add(
                "free", "note", f"nothing cost in {len(costs)} steps with random actions",
                "fine if violations are rare; otherwise see that cost is not always 0",
            )  # fmt: skip
        elif share == 1:
            self.add(
                "dear", "warning", f"every one of {len(costs)} steps with random actions cost something",
                "see that a cost of 0 is possible: it is what safe means",
            )  # fmt: skip
        else:
            self.add("share", "note", f"{share:.1%} of {len(costs)} steps with random actions cost something")

    def _summarise_components(self, components: NDArray[Any]) -> None:
        """Say how often each cost was above 0, where the total is the sum of several."""
        if self.reader is None or self.reader.form == "number":
            return
        shares = zip(self.reader.names, (components > 0).mean(axis=0), strict=True)
        listed = ", ".join(f"{name} (above 0 in {share:.1%} of the steps)" for name, share in shares)
        self.add("components", "note", f"the cost is the sum of {listed}")


def _flatten_or_none(space: spaces.Space[Any], obs: Any) -> NDArray[np.float64] | None:
    """The observation as a vector, or None if it does not fit the space at all."""
    try:
        return np.array(spaces.flatten(space, obs), np.float64)
    except Exception:
        return None


def _how_outside(space: spaces.Space[Any], obs: Any) -> str:
    """Says how an observation of the right size lies outside its space."""
    if not isinstance(space, spaces.Box) or not isinstance(obs, np.ndarray):
        return f"is not in its space, {space}"
    if not np.can_cast(obs.dtype, space.dtype):
        return f"is {obs.dtype}, but the space is {space.dtype}"
    outside = np.argwhere((obs < space.low) | (obs > space.high))
    if not len(outside):
        return f"is not in its space, {space}"
    where = tuple(outside[0].tolist())
    return (
        f"leaves its bounds: entry {', '.join(map(str, where))} is {obs[where]:g},"
        f" the space says {space.low[where]:g} to {space.high[where]:g}"
    )


def _equal_traces(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
