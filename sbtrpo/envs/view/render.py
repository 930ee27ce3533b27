"""Worlds as pictures, drawn with OpenGL: without a screen as arrays, or in a window.

The engine's model holds only what the physics feels, so a picture is put together from three parts: a stage of its own
(sky, floor, light), the robot and the solid objects of the engine's model, and the marks (goals, hazards, rings,
boundaries) of the task. The engine is only read.

What costs is red: `frame(world, violated)` is told the cost components that the last step violated, and paints the
robot and the objects concerned.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import math
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import mujoco
import numpy as np
from numpy.typing import NDArray

from sbtrpo.envs.arrays import to_numpy
from sbtrpo.envs.pool import Pool
from sbtrpo.envs.scene import object_name
from sbtrpo.envs.spec import Group, NavigationSpec
from sbtrpo.envs.streams import Floats
from sbtrpo.envs.tasks.costs import VASE_SPEED_LIMIT
from sbtrpo.envs.tasks.navigation import Navigation
from sbtrpo.envs.view.graphics import NoGraphicsError, WindowContext, advice, graphics_library, offscreen_context
from sbtrpo.envs.view.stage import CAMERAS, LIGHT, Aim, Camera, make_stage

Frame: TypeAlias = NDArray[np.uint8]
"""(height, width, 3)"""
Colour: TypeAlias = tuple[float, float, float, float]

ROBOT = -1
"""Stands for the robot where objects are given by numbers: those count from 0 in placement order."""

# The colours of Safety-Gymnasium, a little less bright.
COLOURS: dict[str, Colour] = {
    "goal": (0.16, 0.72, 0.28, 0.45),
    "hazards": (0.15, 0.30, 0.95, 0.42),
    "vases": (0.10, 0.74, 0.74, 1.0),
    "pillars": (0.47, 0.47, 0.86, 1.0),
    "buttons": (0.98, 0.55, 0.10, 1.0),
    "gremlins": (0.56, 0.20, 0.86, 1.0),
    "push_box": (0.97, 0.82, 0.15, 1.0),
    "circle": (0.16, 0.72, 0.28, 0.9),
    "sigwalls": (0.95, 0.75, 0.10, 0.30),
}
OTHER: Colour = (0.55, 0.55, 0.58, 1.0)
"""For kinds that third parties add."""
UNSAFE: Colour = (0.92, 0.05, 0.08, 1.0)
DARK_BUTTON: Colour = (0.45, 0.43, 0.41, 1.0)
BODY: Colour = (0.20, 0.22, 0.27, 1.0)
ACCENT: Colour = (0.96, 0.96, 0.97, 1.0)
LIMB: Colour = (0.85, 0.60, 0.36, 1.0)
TRAIL: Colour = (0.20, 0.22, 0.27, 0.55)
_UNPAINTED = (0.5, 0.5, 0.5, 1.0)  # MuJoCo's colour for geoms without one

_GEOMS = {
    "sphere": mujoco.mjtGeom.mjGEOM_SPHERE,
    "cylinder": mujoco.mjtGeom.mjGEOM_CYLINDER,
    "box": mujoco.mjtGeom.mjGEOM_BOX,
}
_EVERYTHING = mujoco.mjtCatBit.mjCAT_ALL.value
_MAX_GEOMS = 2000
LOW_WALL = 0.12
"""Half the height at which boundaries are drawn."""
_RING_SEGMENTS = 96
_TRAIL_SEGMENTS = 400
_OFFSCREEN = mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value
_WINDOW = mujoco.mjtFramebuffer.mjFB_WINDOW.value


# ---- what a picture shows --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """What a picture shows of one world at one moment."""

    qpos: Floats
    body_pos: Floats | None
    """(nbody, 3) where the model's bodies stand, if worlds differ in that."""
    body_quat: Floats | None
    objects: Floats
    """(M, 3) centres of all objects, in placement order."""
    target: int
    """The target button."""
    dark: bool
    """Whether the buttons are dark."""


class Renderer:
    """Draws the worlds of a pool.

    Args:
        pool: the worlds.
        width: of a picture, in pixels.
        height: of a picture, in pixels.
        camera: `far` sees the whole arena from an angle, `top` from above, `follow` goes along with the robot; `auto`
            takes `far` where there are objects and `follow` where there are none.
        window: open a window for `show` instead of drawing without a screen.
    """

    def __init__(
        self, pool: Pool, width: int = 640, height: int = 480, camera: Camera = "auto", window: bool = False
    ) -> None:
        if width < 16 or height < 16:
            raise ValueError(f"a picture must be at least 16 pixels wide and high, got {width} x {height}")
        if camera not in CAMERAS:
            raise ValueError(f"camera must be one of {', '.join(CAMERAS)}, got {camera!r}")
        model = getattr(getattr(pool, "physics", None), "model", None)
        if model is None:
            raise ValueError(f"{pool.spec.id} has no scene to draw: it is not simulated by this package's engine")
        self.width, self.height = width, height
        self._pool = pool
        self._task = pool.task if isinstance(pool.task, Navigation) else None
        self._spec: NavigationSpec | None = self._task.spec if self._task else None
        self._model = copy.copy(model)  # painted and placed as the picture needs it
        # Here nothing sleeps: kinematics passes over sleeping and fixed bodies, which the picture moves.
        self._model.opt.enableflags &= ~mujoco.mjtEnableBit.mjENBL_SLEEP.value
        self._data = mujoco.MjData(self._model)
        mujoco.mj_kinematics(self._model, self._data)
        self._paint: NDArray[np.float32] = _base_colours(self._model, self._spec)
        self._geoms_of = _object_geoms(self._model, self._spec)
        self.seconds_a_step = float(pool.spec.substeps * model.opt.timestep) if hasattr(pool.spec, "substeps") else 0.0
        self._shown_at = 0.0

        self._reach = _reach(self._spec) if self._spec else 0.0
        self._camera = Aim(self._model, self._data, camera, self._reach, width / height)
        self._stage = make_stage(self._model, self._data, width, height, min(self._reach or 4.0, 4.0))
        self._stage_data = mujoco.MjData(self._stage)
        mujoco.mj_forward(self._stage, self._stage_data)
        title = pool.spec.id
        self._gl: Any = WindowContext(width, height, title) if window else offscreen_context(width, height)
        self._context: Any = mujoco.MjrContext(self._stage, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        mujoco.mjr_setBuffer(_WINDOW if window else _OFFSCREEN, self._context)
        self._scene = mujoco.MjvScene(self._stage, _MAX_GEOMS)
        self._option, self._perturb = mujoco.MjvOption(), mujoco.MjvPerturb()

    # ---- from a pool's state to what is shown ------------------------------------------------------------------------

    def view(self, world: int = 0) -> View:
        """What there is to see of a world now: small, so that many can be kept and drawn later."""
        physics, task = self._pool.physics, self._task
        qpos = np.array(to_numpy(physics.qpos[world]), np.float64)
        if task is None:
            return View(qpos, None, None, np.zeros((0, 3)), 0, False)
        placed = bool(task.scene.fixed) or not task.scene.robot.free  # otherwise all worlds' bodies stand alike
        return View(
            qpos,
            np.array(to_numpy(physics.field("body_pos")[world])) if placed else None,
            np.array(to_numpy(physics.field("body_quat")[world])) if placed else None,
            np.array(to_numpy(task.worlds.objects[world])),
            int(task.worlds.target[world]),
            bool(task.worlds.timer[world] > 0),
        )

    def concerned(self, world: int, violated: Collection[str]) -> frozenset[int]:
        """What to paint red after a step that violated these cost components: `ROBOT`, and numbers of objects."""
        if not violated:
            return frozenset()
        red = {ROBOT}
        if self._task is not None:
            for name in violated:
                red |= _culprits(self._task, world, name)
        return frozenset(red)

    # ---- drawing -----------------------------------------------------------------------------------------------------

    def frame(self, world: int = 0, violated: Collection[str] = ()) -> Frame:
        """A picture of a world as it is now.

        Args:
            world: its number in the pool.
            violated: names of the cost components that its last step violated, as in `info`.
        """
        return self.draw(self.view(world), self.concerned(world, violated))

    def draw(self, view: View, red: Collection[int] = (), trail: Floats | None = None) -> Frame:
        """A picture of a view: `red` as from `concerned`, `trail` (K, 2) the way that the robot came."""
        self._compose(view, red, trail)
        picture: Frame = np.empty((self.height, self.width, 3), np.uint8)
        area = mujoco.MjrRect(0, 0, self.width, self.height)
        mujoco.mjr_render(area, self._scene, self._context)
        mujoco.mjr_readPixels(picture, None, area, self._context)
        return picture[::-1].copy()

    def show(self, world: int = 0, violated: Collection[str] = ()) -> bool:
        """Draw a world in the window, no faster than its clock; returns whether the window is still open."""
        if not self._gl.open:
            return False
        self._compose(self.view(world), self.concerned(world, violated), None)
        mujoco.mjr_render(mujoco.MjrRect(0, 0, *self._gl.size()), self._scene, self._context)
        self._gl.present()
        time.sleep(max(0.0, self._shown_at + self.seconds_a_step - time.monotonic()))
        self._shown_at = time.monotonic()
        return True

    def _compose(self, view: View, red: Collection[int], trail: Floats | None) -> None:
        """Fill the scene."""
        if self._context is None:
            raise RuntimeError("the renderer is closed; make a new one")
        self._gl.make_current()
        model, data = self._model, self._data
        if view.body_pos is not None:
            model.body_pos[:], model.body_quat[:] = view.body_pos, view.body_quat
        data.qpos[:] = view.qpos
        mujoco.mj_kinematics(model, data)
        model.geom_rgba[:] = self._painted(view, red)
        camera = self._camera.at(data)
        self._stage_data.light_xpos[0] = camera.lookat + LIGHT  # its shadows reach only so far
        mujoco.mjv_updateScene(
            self._stage, self._stage_data, self._option, self._perturb, camera, _EVERYTHING, self._scene
        )
        mujoco.mjv_addGeoms(model, data, self._option, self._perturb, _EVERYTHING, self._scene)
        if trail is not None:
            self._add_trail(trail)
        if self._spec is not None:
            self._add_marks(self._spec, view, red)

    def _painted(self, view: View, red: Collection[int]) -> NDArray[np.float32]:
        """Colours of the model's geoms: (ngeom, 4)."""
        paint = self._paint.copy()
        if self._spec is not None and self._spec.objective == "button":
            first = self._spec.slices()["buttons"].start
            for k in range(self._spec.group("buttons").count):
                chosen = COLOURS["goal"][:3] if k == view.target else COLOURS["buttons"][:3]
                paint[self._geoms_of[first + k]] = DARK_BUTTON if view.dark else (*chosen, 1.0)
        for index in red:
            for geom in self._geoms_of.get(index, []):
                paint[geom] = UNSAFE
        return paint

    def _add_marks(self, spec: NavigationSpec, view: View, red: Collection[int]) -> None:
        for group, among in zip(spec.groups, spec.slices().values(), strict=True):
            if group.body != "mark":
                continue
            colour = COLOURS.get(group.kind, (*OTHER[:3], 0.5))
            for k in range(among.start, among.stop):
                rgba = (*UNSAFE[:3], max(colour[3], 0.6)) if k in red else colour
                if group.kind == "circle":
                    self._add_ring(view.objects[k], group.radius, rgba)
                elif group.kind != "goal" or not view.dark:
                    place = view.objects[k].copy()
                    self._add(_GEOMS[group.shape], _size(group, place), place, rgba)

    def _add(self, kind: Any, size: Iterable[float], place: Floats, rgba: Colour) -> None:
        """One more shape in the scene, not turned."""
        geom = self._next()
        if geom is not None:
            mujoco.mjv_initGeom(geom, kind, np.array([*size]), place, np.eye(3).ravel(), np.array(rgba, np.float32))
            geom.castshadow = 0  # it is painted on the floor

    def _connect(self, start: Floats, end: Floats, width: float, rgba: Colour) -> None:
        """A line in the scene, its width in pixels."""
        geom = self._next()
        if geom is not None:
            line = mujoco.mjtGeom.mjGEOM_LINE  # a capsule would take ten times as long without a GPU
            mujoco.mjv_initGeom(geom, line, np.zeros(3), np.zeros(3), np.zeros(9), np.array(rgba, np.float32))
            mujoco.mjv_connector(geom, line, width, start, end)

    def _next(self) -> Any:
        """The next free place in the scene; None if there is none."""
        scene = self._scene
        if scene.ngeom >= scene.maxgeom:
            return None
        scene.ngeom += 1
        return scene.geoms[scene.ngeom - 1]

    def _add_ring(self, centre: Floats, radius: float, rgba: Colour) -> None:
        self._add(
            mujoco.mjtGeom.mjGEOM_CYLINDER, (radius, 0.003, 0), centre * [1, 1, 0] + [0, 0, 0.003], (*rgba[:3], 0.1)
        )
        angles = np.linspace(0, 2 * np.pi, _RING_SEGMENTS + 1)
        points = np.stack([radius * np.cos(angles), radius * np.sin(angles), np.full_like(angles, 0.01)], axis=1)
        points[:, :2] += centre[:2]
        for start, end in itertools.pairwise(points):
            self._connect(start, end, 0.006 * self.height, rgba)

    def _add_trail(self, trail: Floats) -> None:
        every = max(1, math.ceil(len(trail) / _TRAIL_SEGMENTS))
        kept = trail[::-1][::every][::-1]  # the newest point stays
        points = np.column_stack([kept, np.full(len(kept), 0.012)])
        for start, end in itertools.pairwise(points):
            self._connect(start, end, 0.004 * self.height, TRAIL)

    def close(self) -> None:
        """Give back what was taken from OpenGL."""
        if self._context is not None:
            with contextlib.suppress(Exception):  # the screen may be gone already
                self._gl.make_current()
                self._context.free()
                self._gl.free()
            self._context = None

    def __enter__(self) -> Renderer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---- who is concerned by a cost --------------------------------------------------------------------------------------


def _culprits(task: Navigation, world: int, name: str) -> set[int]:
    """Numbers of the objects with which the last step violated a cost component."""
    for group, place in zip(task.spec.groups, task.slices.values(), strict=True):
        if group.cost and (group.kind in name or (group.kind == "sigwalls" and "boundary" in name)):
            among = _involved(task, world, name, group, place)
            return {place.start + int(k) for k in among}
    return set()


def _involved(task: Navigation, world: int, name: str, group: Group, place: slice) -> NDArray[Any]:
    """Which objects of the group violated it, counted from 0 in the group."""
    distance = np.sqrt(to_numpy(task.worlds.squared[world, place]))
    if group.kind == "hazards":
        return np.flatnonzero(distance < group.radius)
    if group.kind == "sigwalls":  # those that stand between the robot and the origin
        robot, walls = to_numpy(task.worlds.position[world])[:2], to_numpy(task.worlds.objects[world, place])[:, :2]
        return np.flatnonzero(walls @ robot > (walls * walls).sum(axis=1))
    if name.endswith("_velocity"):
        velocity = to_numpy(task.worlds.free_velocity[world, task.scene.free[group.kind]])
        return np.flatnonzero((velocity * velocity).sum(axis=1) >= VASE_SPEED_LIMIT**2)
    if group.kind == "buttons" and task.spec.objective == "button":  # the target is no culprit
        distance[int(task.worlds.target[world])] = np.inf
    return np.array([np.argmin(distance)])  # what is touched is what is nearest


# ---- colours and shapes ----------------------------------------------------------------------------------------------


def _object_geoms(model: Any, spec: NavigationSpec | None) -> dict[int, list[int]]:
    """The model's geoms of the robot and of each solid object."""
    bodies: dict[int, int] = {}
    if spec is not None:
        for group, place in zip(spec.groups, spec.slices().values(), strict=True):
            if group.body != "mark":
                bodies |= {model.body(object_name(group, i)).id: place.start + i for i in range(group.count)}
    geoms: dict[int, list[int]] = {index: [] for index in (ROBOT, *bodies.values())}
    for geom in range(model.ngeom):
        if model.geom_type[geom] != mujoco.mjtGeom.mjGEOM_PLANE:
            geoms[bodies.get(int(model.body_rootid[model.geom_bodyid[geom]]), ROBOT)].append(geom)
    return geoms


def _base_colours(model: Any, spec: NavigationSpec | None) -> NDArray[np.float32]:
    """Colours of the model's geoms when nothing costs: (ngeom, 4). The stage has a floor of its own."""
    paint: NDArray[np.float32] = np.array(model.geom_rgba, np.float32)
    kinds = [group for group in spec.groups for _ in range(group.count)] if spec else []
    for index, geoms in _object_geoms(model, spec).items():
        for geom in geoms:
            if index != ROBOT:
                paint[geom] = COLOURS.get(kinds[index].kind, OTHER)
            elif np.allclose(paint[geom], _UNPAINTED):
                paint[geom] = LIMB if spec is None else BODY if model.geom(geom).name == "agent" else ACCENT
    paint[model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE] = 0.0
    return paint


def _size(group: Group, place: Floats) -> tuple[float, ...]:
    """Half-sizes of a mark as MuJoCo takes them; boundaries face the origin."""
    first, second, third = (*group.size, 0.0, 0.0)[:3]
    if group.kind == "sigwalls":
        third = place[2] = LOW_WALL  # at full height they would hide what is behind them
    if group.shape == "box" and abs(place[1]) > abs(place[0]):
        first, second = second, first
    return first, second, third


def _reach(spec: NavigationSpec) -> float:
    """Half the width of what the far camera must see, in metres."""
    reach = spec.extent
    for group in spec.groups:
        for place in group.places or ():
            reach = max(reach, max(map(abs, place)) + group.size[0])
    return reach


def probe() -> str:
    """Draw a small picture; returns the library that drew it. For checks of a machine."""
    pool = Pool("SafetyPointGoal2-v0", 1)
    pool.reset()
    with Renderer(pool, 64, 48) as renderer:
        if renderer.frame().std() < 1:
            raise NoGraphicsError(advice("OpenGL draws nothing"))
    return graphics_library()
