"""Try an environment, and tell what to change before training on it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from sbtrpo.envs.foreign.environment import (
    FORMS,
    UnfitEnvironment,
    flat_action_space,
    flat_observation_space,
    is_foreign,
    make_environment,
    number,
    one_line,
    time_limit,
)
from sbtrpo.envs.foreign.workers import start_process, stop_process
from sbtrpo.envs.gym import SafetyEnv
from sbtrpo.envs.physics.cpu import available_cores
from sbtrpo.envs.registry import get_spec

Environment = gymnasium.Env[Any, Any]
Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")

UNLIMITED_TRIAL = 1000
"""Steps of an episode in the trial of an environment without a time limit."""
SLOW = 200.0
"""Steps a second in one process below which training takes days."""
PAPER_STEPS = 2e7
TRACE_STEPS = 25
LEAST_STEPS = 10
"""Fewer say nothing about costs and speed."""
PATIENCE = 60.0
"""Seconds beyond its time after which an environment counts as hanging."""


@dataclass(frozen=True)
class Finding:
    """Something to know about an environment."""

    severity: Severity
    """error: it cannot be trained on; warning: results will suffer; note: good to know."""
    what: str
    remedy: str = ""


@dataclass(frozen=True)
class Report:
    """All findings, the gravest first."""

    task: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether the environment can be trained on."""
        return not any(finding.severity == "error" for finding in self.findings)

    def lines(self) -> list[str]:
        """For printing."""
        counts = [
            f"{count} {severity}{'s' if count > 1 else ''}"
            for severity in SEVERITIES[:2]
            if (count := sum(finding.severity == severity for finding in self.findings))
        ]
        lines = [f"{self.task}: {' and '.join(counts) if counts else 'nothing to change'}"]
        for finding in self.findings:
            lines.append(f"{finding.severity}: {finding.what}")
            if finding.remedy:
                lines.append(f"    {finding.remedy}")
        return lines


def check_environment(task: str, seconds: float = 5.0, seed: int = 0, isolated: bool = True) -> Report:
    """Try an environment with random actions.

    Args:
        task: "module:EnvId", or one of our own tasks.
        seconds: how long to step it, besides the time to start.
        seed: of its episodes and of the actions.
        isolated: try a foreign environment in a process of its own, as training does: it may die.

    >>> check_environment("ToyCorridor-v0", seconds=0.1).ok
    True
    """
    if seconds <= 0:
        raise ValueError(f"seconds must be above 0, got {seconds}")
    if is_foreign(task) and isolated:
        findings = _try_in_a_process(task, seed, seconds)
    else:
        findings = Trial(task, seed).run(seconds)
    return Report(task, tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))))


def _try_in_a_process(task: str, seed: int, seconds: float) -> list[Finding]:
    line, process = start_process(_tell_findings, task, seed, seconds)
    findings: list[Finding] = []
    try:
        while line.poll(seconds + PATIENCE):
            finding = line.recv()
            if finding is None:  # that was all
                return findings
            findings.append(finding)
        how, remedy = f"hung for more than {PATIENCE:.0f} seconds", "see that step and reset return"
    except (EOFError, OSError):
        how, remedy = "ended its process", "run it by itself, with `python -X faulthandler`, to see where"
    finally:
        stop_process(line, process, patience=1.0)
    return [*findings, Finding("error", f"the environment {how}", remedy)]


def _tell_findings(line: Connection, task: str, seed: int, seconds: float) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asked hears Ctrl-C
    Trial(task, seed, tell=line.send).run(seconds)
    line.send(None)


class Trial:
    """One environment, stepped in this process; each finding is told at once, for the next step may be the last."""

    def __init__(self, task: str, seed: int, tell: Callable[[Finding], None] | None = None) -> None:
        self.task, self.seed, self._tell = task, seed, tell
        self.found: dict[str, Finding] = {}
        """By kind: of each only the first is told."""
        self.rewards: list[float] = []
        self.costs: list[float] = []
        self.step_seconds, self.reset_seconds, self.resets = 0.0, 0.0, 0

    def run(self, seconds: float) -> list[Finding]:
        """Everything, as far as it makes sense."""
        try:
            env, limit = self._make()
            flat_observation_space(self.task, env.observation_space)
            flat_action_space(self.task, env.action_space)
        except UnfitEnvironment as error:
            self.note("unfit", "error", str(error).removeprefix(f"{self.task}: "))
            return list(self.found.values())
        if limit is None:
            self.note(
                "limit", "error", "there is no time limit: episodes may never end",
                "register the environment with max_episode_steps=...",
            )  # fmt: skip
        env.action_space.seed(self.seed)
        try:
            self._episodes(env, limit or UNLIMITED_TRIAL, seconds)
            if not any(finding.severity == "error" for finding in self.found.values()):
                self._check_seeding(env)
        except UnfitEnvironment as error:
            self.note("unfit", "error", str(error).removeprefix(f"{self.task}: "))
        except Exception as error:
            self.note(
                "raised", "error", f"after {len(self.costs)} steps it raised {one_line(error)}",
                "the world would be reset and counted as a fault, but it should not happen",
            )  # fmt: skip
        finally:
            env.close()
        self._judge()
        return list(self.found.values())

    def note(self, kind: str, severity: Severity, what: str, remedy: str = "") -> None:
        """Add a finding, if it is the first of its kind."""
        if kind not in self.found:
            self.found[kind] = Finding(severity, what, remedy)
            if self._tell is not None:
                self._tell(self.found[kind])

    def _make(self) -> tuple[Environment, int | None]:
        if is_foreign(self.task):
            env = make_environment(self.task)
            return env, time_limit(env)
        own = self.task.removeprefix("sbtrpo:")
        return SafetyEnv(own), get_spec(own).episode_length

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
                ended = self._look(env, result, f"in step {step} of an episode")
                if now > until:
                    return
                if ended:
                    break

    def _reset(self, env: Environment, seed: int) -> Any:
        began = time.perf_counter()
        result = env.reset(seed=seed)
        self.reset_seconds += time.perf_counter() - began
        self.resets += 1
        if not isinstance(result, tuple) or len(result) != 2:
            raise UnfitEnvironment("reset must take a seed and return (obs, info)")
        self._look_at_observation(env, result[0], "after reset")
        return result[0]

    def _look(self, env: Environment, result: Any, when: str) -> bool:
        """At what a step returned; tells whether it ended the episode."""
        if not isinstance(result, tuple) or len(result) not in (5, 6):
            raise UnfitEnvironment(f"step must return {FORMS}, got {result!r:.80}")
        obs, reward, *cost_of_six, terminated, truncated, info = result
        self._look_at_observation(env, obs, when)
        for name, flag in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(flag, bool | np.bool_):
                self.note(name, "warning", f"{name} is a {type(flag).__name__}", "make it a bool")
        value = number(self.task, "reward", reward)
        if not np.isfinite(value):
            self.note("reward", "error", f"the reward was {value} {when}", "find what divides by 0 or overflows")
        self.rewards.append(value)
        self.costs.append(self._cost(cost_of_six[0] if cost_of_six else info.get("cost"), when))
        return bool(terminated or truncated)

    def _cost(self, cost: Any, when: str) -> float:
        if cost is None:
            self.note(
                "no cost", "error", f'no cost {when}: info has no "cost"',
                'put info["cost"] into every step, 0.0 where nothing is violated',
            )  # fmt: skip
            return 0.0
        value = number(self.task, "the cost", cost)
        if not np.isfinite(value):
            self.note("cost", "error", f"the cost was {value} {when}", "find what divides by 0 or overflows")
        elif value < 0:
            self.note(
                "negative", "error", f"the cost was {value:g} {when}",
                "costs are >= 0, and 0 means safe; what is good belongs into the reward",
            )  # fmt: skip
        return value

    def _look_at_observation(self, env: Environment, obs: Any, when: str) -> None:
        space = env.observation_space
        flat = _flat(space, obs)
        if flat is None or flat.shape != flat_observation_space(self.task, space).shape:
            self.note(
                "shape", "error", f"an observation {when} has another form than the observation space says",
                f"correct the space, {space}, or the observation",
            )  # fmt: skip
        elif not np.isfinite(flat).all():
            where = int(np.flatnonzero(~np.isfinite(flat))[0])
            self.note(
                "nan", "error", f"entry {where} of the observation was {flat[where]} {when}",
                "find what divides by 0 or overflows",
            )  # fmt: skip
        elif not space.contains(obs):
            self.note("space", "warning", f"an observation {when} {_lie(space, obs)}", "correct the observation space")

    # ---- what the numbers say ----------------------------------------------------------------------------------

    def _check_seeding(self, env: Environment) -> None:
        first, again = self._trace(env, self.seed), self._trace(env, self.seed)
        if not _same(first, again):
            self.note(
                "seed", "warning", "reset does not respect its seed: two episodes with one seed differ",
                "call super().reset(seed=seed) and draw every random number from self.np_random",
            )  # fmt: skip
            return
        other = self._make()[0]
        try:
            if not _same(first, self._trace(other, self.seed)):
                self.note(
                    "seed", "warning", "two environments with one seed differ: something is random beside the seed",
                    "draw in reset what is drawn in the constructor, and share nothing between environments",
                )  # fmt: skip
        finally:
            other.close()
        if _same(first, self._trace(env, self.seed + 1)):
            self.note(
                "alike", "note", "episodes of different seeds are alike",
                "fine if nothing is meant to be random; otherwise draw from self.np_random",
            )  # fmt: skip

    def _trace(self, env: Environment, seed: int) -> list[NDArray[Any] | None]:
        """What a seeded episode of always the same actions begins with."""
        space = env.action_space
        space.seed(seed)
        trace = [_flat(env.observation_space, self._reset(env, seed))]
        space.seed(self.seed)
        for _ in range(TRACE_STEPS):
            obs, reward, *_, terminated, truncated, _ = env.step(space.sample())
            trace += [_flat(env.observation_space, obs), np.asarray(reward)]
            if terminated or truncated:
                break
        return trace

    def _judge(self) -> None:
        steps = len(self.costs)
        if steps < LEAST_STEPS:
            return
        if "no cost" not in self.found:
            self._judge_costs(np.asarray(self.costs))
        if np.ptp(self.rewards) == 0:
            self.note("flat", "note", f"the reward was {self.rewards[0]:g} in all {steps} steps with random actions")
        rate, reset = steps / self.step_seconds, self.reset_seconds / max(self.resets, 1)
        cores = available_cores()
        hours = PAPER_STEPS / rate / cores / 3600
        how_long = f"{hours:.1f} hours" if hours >= 1 else f"{60 * hours:.0f} minutes"
        self.note(
            "speed",
            "warning" if rate < SLOW else "note",
            f"speed: {rate:,.0f} steps a second in one process, {1000 * reset:.1f} ms a reset; 20 million steps take"
            f" about {how_long} on the {cores} cores here",
            "train for fewer steps (--total-steps), on more cores, or make step faster" if rate < SLOW else "",
        )

    def _judge_costs(self, costs: NDArray[Any]) -> None:
        share = float((costs > 0).mean())
        if share == 0:
            self.note(
                "free", "note", f"nothing cost in {len(costs)} steps with random actions",
                "fine if violations are rare; otherwise see that cost is not always 0",
            )  # fmt: skip
        elif share == 1:
            self.note(
                "dear", "warning", f"every one of {len(costs)} steps with random actions cost something",
                "see that a cost of 0 is possible: it is what safe means",
            )  # fmt: skip
        else:
            self.note("share", "note", f"{share:.1%} of {len(costs)} steps with random actions cost something")


def _flat(space: spaces.Space[Any], obs: Any) -> NDArray[np.float64] | None:
    """As a vector, or None if it does not fit the space at all."""
    try:
        return np.array(spaces.flatten(space, obs), np.float64)
    except Exception:
        return None


def _lie(space: spaces.Space[Any], obs: Any) -> str:
    """How an observation of the right size is outside its space."""
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


def _same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
