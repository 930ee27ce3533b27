"""The stage of a picture: sky, floor and light, which the engine's model lacks, and where the camera stands."""

from __future__ import annotations

import math
from typing import Any, Literal

import mujoco
import numpy as np

Camera = Literal["auto", "far", "top", "follow"]
CAMERAS: tuple[Camera, ...] = ("auto", "far", "top", "follow")
FIELD_OF_VIEW = 30.0
FARTHEST = 1.7
"""The far camera moves back until it sees this many times the arena, for a robot that leaves it."""
LARGE = 6.0
"""Metres: in a larger arena the camera goes along with the robot."""
LIGHT = np.array([-2.0, -3.0, 6.0])
"""Where light comes from, as seen from the middle of the picture."""


def make_stage(model: Any, data: Any, width: int, height: int, reach: float) -> Any:
    """Sky, floor and light, as a model of their own."""
    spec = mujoco.MjSpec()
    visual = spec.visual
    visual.global_.offwidth, visual.global_.offheight = width, height
    visual.global_.fovy = FIELD_OF_VIEW
    visual.quality.shadowsize, visual.quality.offsamples = 1024, 4
    visual.headlight.ambient, visual.headlight.diffuse = [0.38] * 3, [0.22] * 3
    visual.headlight.specular = [0.05] * 3
    visual.map.znear, visual.map.zfar = 0.02, 60.0
    visual.map.shadowclip, visual.map.shadowscale = 1.5, 0.8
    spec.stat.extent, spec.stat.center = 2 * reach, [0, 0, 0]
    texture = mujoco.mjtTexture
    spec.add_texture(
        name="sky", type=texture.mjTEXTURE_SKYBOX, builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT,
        rgb1=[0.55, 0.69, 0.84], rgb2=[0.93, 0.95, 0.97], width=128, height=128,
    )  # fmt: skip
    spec.add_texture(
        name="floor", type=texture.mjTEXTURE_2D, builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
        rgb1=[0.83, 0.84, 0.86], rgb2=[0.78, 0.79, 0.82], width=128, height=128,
    )  # fmt: skip
    floor = spec.add_material(name="floor", texuniform=True, texrepeat=[1, 1], specular=0.0, shininess=0.0)
    floor.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "floor"
    level = _floor_level(model, data)
    spec.worldbody.add_geom(
        type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 0.1], pos=[0, 0, level], material="floor"
    )  # fmt: skip
    spec.worldbody.add_light(
        type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL, pos=LIGHT, dir=-LIGHT,
        castshadow=True, diffuse=[0.5] * 3, specular=[0.15] * 3,
    )  # fmt: skip
    return spec.compile()


def _floor_level(model: Any, data: Any) -> float:
    """Height of the model's floor; without one, of its lowest part."""
    planes = model.geom_type == mujoco.mjtGeom.mjGEOM_PLANE
    if planes.any():
        return float(data.geom_xpos[planes, 2].min())
    turned = np.abs(data.geom_xmat.reshape(-1, 3, 3)[:, 2])
    return float((data.geom_xpos[:, 2] - (turned * model.geom_aabb[:, 3:]).sum(axis=1)).min())


class Aim:
    """Where the camera stands."""

    def __init__(self, model: Any, data: Any, kind: Camera, reach: float, aspect: float) -> None:
        robot = model.geom_type != mujoco.mjtGeom.mjGEOM_PLANE
        heights = data.geom_xpos[robot, 2]
        self._follow = kind == "follow" or not reach or (kind == "auto" and reach > LARGE)
        self._body = int(model.body("agent").id) if reach else 1
        self._reach, self._aspect = reach, aspect
        self._height = 0.0 if reach else float(heights.mean())
        camera = self._camera = mujoco.MjvCamera()
        camera.azimuth = 90.0
        if reach:
            camera.elevation = -35.0 if self._follow else -52.0
            camera.distance = 3.8
            if reach > LARGE:  # Run goes towards -y: see what is ahead
                camera.azimuth, camera.distance = -90.0, 6.0
        else:
            upright = np.ptp(heights) > 0.5  # seen from the side, and what lies flat from above
            camera.elevation = -12.0 if upright else -52.0
            camera.distance = 5.2 if upright else 9.5
        if kind == "top":
            camera.elevation = -89.9

    def at(self, data: Any) -> Any:
        """The camera for where the robot now is."""
        x, y = (float(v) for v in data.xpos[self._body, :2])
        if not self._follow:  # a robot that leaves the arena is seen from farther away, and then followed
            out = max(self._reach, abs(x) + 0.3, abs(y) + 0.3)
            self._camera.distance = self._distance(min(out, FARTHEST * self._reach))
            x, y = (math.copysign(max(0.0, abs(v) - (FARTHEST - 0.2) * self._reach), v) for v in (x, y))
        self._camera.lookat[:] = x, y, self._height
        return self._camera

    def _distance(self, reach: float) -> float:
        """Nearest distance from which the square [-reach, reach]² is in the picture."""
        elevation = math.radians(-self._camera.elevation)
        vertical = math.tan(math.radians(FIELD_OF_VIEW / 2))
        forward = np.array([0.0, math.cos(elevation), -math.sin(elevation)])
        up = np.array([0.0, math.sin(elevation), math.cos(elevation)])
        corners = reach * np.array([[x, y, 0.0] for x in (-1.04, 1.04) for y in (-1.04, 1.04)])
        across, along = np.abs(corners[:, 0]) / (vertical * self._aspect), np.abs(corners @ up) / vertical
        return float((np.maximum(across, along) - corners @ forward).max())
