"""The GPU engine: MuJoCo Warp, thousands of worlds in single precision. It also runs on the CPU, slowly, for tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import array_api_compat.torch as xp
import mujoco
import mujoco_warp as mjw
import numpy as np
import torch
import warp as wp
from torch import Tensor
from typing_extensions import override

from sbtrpo.envs.arrays import Who, put, restore, saved
from sbtrpo.envs.physics.base import Physics

_State = mujoco.mjtState
_Overflow = mjw.OverflowType
AWAKE = -(1 + mujoco.mjMINAWAKE)
"""Of a tree of bodies that has moved just now."""
ROWS = int(_Overflow.NEFC | _Overflow.NJMAX_NNZ)
"""Overflows of a world's constraint rows."""
CONTACTS = int(_Overflow.BROADPHASE | _Overflow.NARROWPHASE | _Overflow.CCD)
"""Overflows of the contacts, which all worlds keep in one place."""
LOSSES = ROWS | CONTACTS | int(_Overflow.CONTACT_MATCH | _Overflow.EPA_HORIZON)
"""Overflows in which contacts are lost: such a step is none of the task's. (Others only stop an iteration early.)"""
FIELDS = ("body_pos", "body_quat", "eq_data")
"""Fields of the model that may have a value for each world."""


class GpuPhysics(Physics):
    """N worlds on a device.

    Args:
        model: compiled with immovable objects as mocap bodies.
        num_worlds: N.
        device: "cuda", or "cpu" for tests.
        room: for contacts of a world, on average over all worlds, and for constraint rows of any one world; by the
            model if left out.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        num_worlds: int,
        device: str = "cuda",
        room: tuple[int, int] | None = None,
    ) -> None:
        self.xp: Any = xp
        self.model, self.num_worlds, self.device = model, num_worlds, device
        if model.opt.solver == mujoco.mjtSolver.mjSOL_PGS:
            model.opt.solver = mujoco.mjtSolver.mjSOL_NEWTON  # Warp has no other that converges as far
        self._place = wp.get_device(device)
        if self._place.is_cuda:  # what torch and Warp do to the same arrays happens in the order of the calls
            wp.set_stream(wp.stream_from_torch(torch.cuda.current_stream()), self._place)
            _compile(self._place, bool(model.opt.enableflags & mujoco.mjtEnableBit.mjENBL_SLEEP))
        self.room = room or capacities(model)
        with wp.ScopedDevice(self._place):
            self.warp_model = mjw.put_model(model, batch_sizes=dict.fromkeys(_batched(model), num_worlds))
        self.data = self._make_data()
        self.warp_model.opt.warn_overflow = 0
        self.warp_model.opt.run_rne_postconstraint = bool(model.nsensor)
        self._fields = {name: wp.to_torch(getattr(self.warp_model, name)) for name in _batched(model)}
        d = self.data
        self.qpos, self.qvel, self.ctrl, self.time = (wp.to_torch(a) for a in (d.qpos, d.qvel, d.ctrl, d.time))
        self.sensordata, self.xpos, self.xmat = (wp.to_torch(a) for a in (d.sensordata, d.xpos, d.xmat))
        self._overflow, self._asleep = wp.to_torch(d.overflow), wp.to_torch(d.tree_asleep)
        self._lost = torch.zeros(3, dtype=torch.int64, device=device)
        self._warmstart = wp.to_torch(d.qacc_warmstart)
        self._mocap_pos, self._mocap_quat = wp.to_torch(d.mocap_pos), wp.to_torch(d.mocap_quat)
        self._start = torch.tensor(model.qpos0, dtype=self.qpos.dtype, device=device)
        self._mocap_bodies = [int(body) for body in np.flatnonzero(model.body_mocapid >= 0)]
        if model.neq:
            self.dragger = self._mocap_pos[:, model.body("dragger").mocapid[0]]
        self._still = [body for body in self._mocap_bodies if model.body(body).name != "dragger"]
        self._parts: dict[Any, Tensor] = {
            _State.mjSTATE_TIME: self.time,
            _State.mjSTATE_QPOS: self.qpos,
            _State.mjSTATE_QVEL: self.qvel,
            _State.mjSTATE_WARMSTART: self._warmstart,
            _State.mjSTATE_CTRL: self.ctrl,
        }
        self._layout = _state_layout(model)
        self._stand()
        self.forward()

    @override
    def field(self, name: str) -> Tensor:
        tensor: Tensor = self._fields[name]
        return tensor

    @override
    def output(self, name: str) -> Tensor:
        tensor: Tensor = wp.to_torch(getattr(self.data, name))
        return tensor

    @override
    def step(
        self, substeps: int, forward: bool, mocap: Any = None, between: Callable[[], None] | None = None
    ) -> Tensor:
        with wp.ScopedDevice(self._place):
            for k in range(substeps):
                if mocap is not None:
                    self.dragger.copy_(mocap[:, k])
                self._forget()
                mjw.step(self.warp_model, self.data)
            if between is not None:
                between()
            if forward:
                self._forget()
                mjw.forward(self.warp_model, self.data)
        lost = [(self._overflow & kind) != 0 for kind in (CONTACTS, ROWS, LOSSES)]
        self._lost += torch.stack(lost).sum(dim=1)
        self._overflow.zero_()  # here, so that a reset's overflow counts in the step after it
        finite = torch.isfinite(self.qpos).all(dim=1) & torch.isfinite(self.qvel).all(dim=1)
        failed: Tensor = lost[-1] | ~finite
        return failed

    def _forget(self) -> None:
        """Leave no force of an earlier step where bodies sleep.

        Where nothing constrains the rest, Warp takes it for one of this step, and it may double from step to step until
        it is infinite.
        """
        self.data.cqfrc_constraint.zero_()

    @property
    def lost(self) -> Tensor:
        """(1,): steps of worlds in which contacts were lost, since room was made last."""
        return self._lost[2:]

    def grow(self) -> str:
        """Make more room where it was too small since the last call; returns a sentence, empty where it was not.

        This waits for the device. All arrays that others hold stay where they are, but what was recorded has to be
        recorded anew.
        """
        contacts, rows, lost = self._lost.tolist()
        if not lost:
            return ""
        before = self.room
        more, further = (size + size // 2 if n else size for size, n in zip(before, (contacts, rows), strict=True))
        self.make_room(more, further)
        return (
            f"{lost} steps of worlds had more contacts than there was room for, and count as faults; room for contacts"
            f" and constraint rows of a world was {before} and is {self.room} from now on"
        )

    def make_room(self, contacts: int, rows: int) -> None:
        """Have so much room from now on; like `grow`, whatever was lost before."""
        self.room = contacts, rows
        self._lost.zero_()
        self._overflow.zero_()
        grown = self._make_data()
        for field in dataclasses.fields(grown):
            old, new = getattr(self.data, field.name), getattr(grown, field.name)
            if isinstance(old, wp.array) and old.shape == new.shape:
                setattr(grown, field.name, old)
        self.data = grown
        self.forward()

    def _make_data(self) -> Any:
        contacts, rows = self.room
        with wp.ScopedDevice(self._place):
            return mjw.make_data(self.model, self.num_worlds, nconmax=contacts, njmax=rows)

    @override
    def reset(self, who: Who) -> None:
        put(self.qpos, who, self._start.expand_as(self.qpos))
        for array in (self.qvel, self.ctrl, self.time, self._warmstart):
            put(array, who, 0.0)
        self.wake(who)
        self._stand()

    @override
    def wake(self, who: Who) -> None:
        """From the next forward on: Warp derives all else from this."""
        put(self._asleep, who, AWAKE)

    def _stand(self) -> None:
        """Put the immovable objects where the fields of the model say."""
        for body in self._still:
            number = int(self.model.body_mocapid[body])
            self._mocap_pos[:, number] = self._fields["body_pos"][:, body]
            self._mocap_quat[:, number] = self._fields["body_quat"][:, body]

    @override
    def forward(self, who: Who | None = None) -> None:
        with wp.ScopedDevice(self._place):
            self._forget()
            mjw.forward(self.warp_model, self.data)

    @override
    def state_dict(self) -> dict[str, Any]:
        """As the CPU engine saves it, in double precision."""
        state = np.zeros((self.num_worlds, sum(size for _, size in self._layout)))
        start = 0
        for kind, size in self._layout:
            if kind in self._parts:
                state[:, start : start + size] = saved(self._parts[kind]).reshape(self.num_worlds, size)
            elif kind == _State.mjSTATE_EQ_ACTIVE:
                state[:, start : start + size] = self.model.eq_active0
            start += size
        return {"state": state, "fields": {name: saved(values) for name, values in self._fields.items()}}

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, values in state["fields"].items():
            restore(self._fields[name], values)
        start = 0
        for kind, size in self._layout:
            if kind in self._parts:
                part = self._parts[kind]
                restore(part, state["state"][:, start : start + size].reshape(part.shape))
            start += size
        self._asleep.fill_(AWAKE)
        self._stand()
        self.forward()


def capacities(model: mujoco.MjModel) -> tuple[int, int]:
    """Room for contacts, on average over worlds, and for constraint rows of one world."""
    body = model.geom_bodyid
    free = np.isin(model.body_jntadr, np.flatnonzero(model.jnt_type == mujoco.mjtJoint.mjJNT_FREE))
    lying = int(np.sum((model.geom_type == mujoco.mjtGeom.mjGEOM_BOX) & free[body]))
    car = 5 if any(model.body(k).name == "rear" for k in range(model.nbody)) else 0
    resting = 4 * max(lying - (5 if car else 0), 0) + car
    solid = model.nmocap + lying + model.neq > 0
    extra = (16 if car else 8) if solid else 2
    if not any(model.body(k).name == "agent" for k in range(model.nbody)):
        return 16, 8 * 16
    return resting + 16, 10 * (resting + extra) + 6 * model.neq


def _compile(place: Any, sleep: bool) -> None:
    """Compile the kernels of every model, several modules at once: one after the other, they take minutes."""
    names = ["forward", "passive", "sensor", "smooth", *(["island"] if sleep else [])]
    wp.force_load(place, [wp.get_module(f"mujoco_warp._src.{name}") for name in names])


def _state_layout(model: mujoco.MjModel) -> list[tuple[Any, int]]:
    """The parts of a state as the CPU engine saves it, in order, and their sizes.

    There only the dragger of gremlins is a mocap body.
    """
    whole = _State.mjSTATE_INTEGRATION.value
    bits = [1 << k for k in range(whole.bit_length()) if whole & (1 << k)]
    sizes = {_State(bit): mujoco.mj_stateSize(model, bit) for bit in bits}
    dragged = int(model.neq > 0)
    sizes[_State.mjSTATE_MOCAP_POS], sizes[_State.mjSTATE_MOCAP_QUAT] = 3 * dragged, 4 * dragged
    return list(sizes.items())


def _batched(model: mujoco.MjModel) -> list[str]:
    return [name for name in FIELDS if name != "eq_data" or model.neq]
