"""The CPU engine: `mujoco.batch.Batch`, all cores, resting bodies asleep."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import array_api_compat.numpy as xp
import mujoco
import numpy as np
from mujoco import batch
from numpy.typing import NDArray
from typing_extensions import override

from sbtrpo.envs.physics.base import Physics

_NONE = mujoco.mjtStage.mjSTAGE_NONE.value
_ACC = mujoco.mjtStage.mjSTAGE_ACC.value
_MOCAP_CONTROL = mujoco.mjtState.mjSTATE_MOCAP_POS.value


def available_cores() -> int:
    """Cores this process may use, which in a container are fewer than the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _keep_log_file_out_of_the_way() -> None:
    """Keep MuJoCo from writing a log into the user's working directory: worlds that diverge are reported anyway."""
    config = mujoco.MjLogConfig.get()
    config.logto_file = False
    config.set()


class CpuPhysics(Physics):
    """N worlds on the CPU."""

    def __init__(self, model: mujoco.MjModel, num_worlds: int, threads: int = 0) -> None:
        _keep_log_file_out_of_the_way()
        self.xp: Any = xp
        self.model = model
        self.num_worlds = num_worlds
        self.batch = batch.Batch(model, num_worlds, threads or available_cores(), persistent=True)
        self.qpos = self.batch.bind("qpos")
        self.qvel = self.batch.bind("qvel")
        self.ctrl = self.batch.bind("ctrl")
        self.time = self.batch.bind("time")
        self.sensordata = self.batch.bind("sensordata")
        self.xpos = self.batch.bind("xpos")
        self.xmat = self.batch.bind("xmat").reshape(num_worlds, -1, 3, 3)
        self._fields: dict[str, NDArray[np.float64]] = {}
        self._warnings = self.batch.warning
        self._seen = self._warnings.copy()

    @override
    def field(self, name: str) -> NDArray[np.float64]:
        if name not in self._fields:
            self._fields[name] = self.batch.expand(name)
        return self._fields[name]

    @override
    def output(self, name: str) -> NDArray[Any]:
        derived: NDArray[Any] = self.batch.bind(name)
        return derived

    @override
    def step(
        self, substeps: int, forward: bool, mocap: Any = None, between: Callable[[], None] | None = None
    ) -> NDArray[np.bool_] | None:
        errors = self.advance(substeps, forward, mocap, between)
        # MuJoCo answers a diverging state (or a full arena) with a warning and another state.
        if not errors and self._warnings.tobytes() == self._seen.tobytes():
            return None
        failed: NDArray[np.bool_] = (self._warnings != self._seen).any(axis=(1, 2))
        failed[errors] = True
        self._seen[:] = self._warnings
        return failed

    def advance(
        self, substeps: int, forward: bool, mocap: Any = None, between: Callable[[], None] | None = None
    ) -> list[int]:
        """Let the engine step; returns the worlds in which it raised."""
        stage = _ACC if forward else _NONE
        errors: list[int] = []
        try:  # a world in which MuJoCo raises does not keep the others from running to the end
            if mocap is None:
                self.batch.step(nstep=substeps, stage=stage if between is None else _NONE)
            else:
                self.batch.rollout(substeps, mocap, _MOCAP_CONTROL, record=())
        except batch.SimulationError as error:
            errors += error.ids.tolist()
        if between is not None:
            between()
        if mocap is not None or between is not None:
            try:
                self.batch.forward(stage=stage)
            except batch.SimulationError as error:
                errors += error.ids.tolist()
        return errors

    @override
    def reset(self, rows: Any) -> None:
        self.batch.reset(rows, stage=_NONE)
        self._seen[rows] = self._warnings[rows]

    @override
    def forward(self, rows: Any = None) -> None:
        self.batch.forward(rows)

    @override
    def wake(self, rows: Any) -> None:
        """Put the worlds' own state into them anew: a reset forgets who slept, and who has been still for how long."""
        state = self.batch.state[rows].copy()
        self.reset(rows)
        self.batch.state[rows] = state
        self.forward(rows)

    @override
    def state_dict(self) -> dict[str, Any]:
        return {
            "state": self.batch.state.copy(),
            "fields": {name: values.copy() for name, values in self._fields.items()},
        }

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, values in state["fields"].items():
            self.field(name)[:] = values
        self.batch.state[:] = state["state"]
        self.wake(np.arange(self.num_worlds))
