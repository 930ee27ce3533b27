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

_NONE = mujoco.mjtStage.mjSTAGE_NONE.value
_ACC = mujoco.mjtStage.mjSTAGE_ACC.value
_MOCAP_CONTROL = mujoco.mjtState.mjSTATE_MOCAP_POS.value


def available_cores() -> int:
    """Cores this process may use, which in a container are fewer than the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _keep_log_file_out_of_the_way() -> None:
    """Worlds that diverge are counted and reported; MuJoCo need not also write into the user's working directory."""
    config = mujoco.MjLogConfig.get()
    config.logto_file = False
    config.set()


class CpuPhysics:
    """N worlds on the CPU (see `Physics`)."""

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

    def field(self, name: str) -> NDArray[np.float64]:
        """A model field with a value for each world."""
        if name not in self._fields:
            self._fields[name] = self.batch.expand(name)
        return self._fields[name]

    def output(self, name: str) -> NDArray[Any]:
        """A derived field, brought up to date by every call."""
        derived: NDArray[Any] = self.batch.bind(name)
        return derived

    def step(
        self, substeps: int, forward: bool, mocap: Any = None, between: Callable[[], None] | None = None
    ) -> NDArray[np.bool_] | None:
        """Advance all worlds; None, or a mask of the failed ones."""
        errors = self.advance(substeps, forward, mocap, between)
        # MuJoCo answers a diverging state (or a full arena) with a warning and a state of its own making.
        if not errors and self._warnings.tobytes() == self._seen.tobytes():
            return None
        failed: NDArray[np.bool_] = (self._warnings != self._seen).any(axis=(1, 2))
        failed[errors] = True
        self._seen[:] = self._warnings
        return failed

    def advance(
        self, substeps: int, forward: bool, mocap: Any = None, between: Callable[[], None] | None = None
    ) -> list[int]:
        """The engine's own part of a step; returns the worlds in which it raised."""
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

    def reset(self, rows: Any) -> None:
        """Initial state, with the model fields as they now are."""
        self.batch.reset(rows, stage=_NONE)
        self._seen[rows] = self._warnings[rows]

    def forward(self, rows: Any = None) -> None:
        """Compute everything that follows from the state."""
        self.batch.forward(rows)

    def state_dict(self) -> dict[str, Any]:
        """State rows and model fields; the running worlds are put through a restore of their own, waking sleepers.

        Which bodies sleep, and for how long the others have been still, cannot be written into a world, so going on
        equals restoring only if both start from the same: everybody awake.
        """
        state = {
            "state": self.batch.state.copy(),
            "fields": {name: values.copy() for name, values in self._fields.items()},
        }
        self.load_state_dict(state)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state_dict`."""
        for name, values in state["fields"].items():
            self.field(name)[:] = values
        self.reset(np.arange(self.num_worlds))
        self.batch.state[:] = state["state"]
        self.forward()
