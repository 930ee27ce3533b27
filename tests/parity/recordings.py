"""Recordings of the original environments, and how to load them into worlds of ours."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import sbtrpo
from sbtrpo import Pool
from sbtrpo.envs.arrays import restore
from sbtrpo.envs.tasks.navigation import Navigation

FOLDER = Path(os.environ.get("SBTRPO_GOLDEN", Path(__file__).parent.parent / "data" / "golden"))
"""All of the recordings, or the small set that comes with the tests."""


@dataclass(frozen=True)
class Recording:
    path: Path

    @property
    def task(self) -> str:
        return self.path.name.split("__")[0]

    @property
    def seed(self) -> int:
        return int(self.path.stem.split("seed")[-1])

    @cached_property
    def arrays(self) -> dict[str, Any]:
        with np.load(self.path) as file:
            return dict(file)

    def __getitem__(self, name: str) -> Any:
        return self.arrays[name]

    def __contains__(self, name: str) -> bool:
        return name in self.arrays

    def __len__(self) -> int:
        return len(self["action"])

    def before(self, name: str, first: Any) -> Any:
        """The values before each step: `first` and then those after all steps but the last."""
        return np.concatenate([np.asarray(first)[None], self[name][:-1]])

    @property
    def touches(self) -> Any:
        """Whether the robot touches anything but the floor after each step: (T,)."""
        counts = [self[name] for name in self.arrays if name.startswith("ncontact_")]
        return np.sum(counts, axis=0) > 0 if counts else np.zeros(len(self), bool)

    def costs(self) -> dict[str, Any]:
        """Recorded cost components; absent entries (a button's dark time) are no cost."""
        names = [n for n in self.arrays if n.startswith("info_cost_") and n != "info_cost_sum"]
        return {name.removeprefix("info_"): np.nan_to_num(self[name]) for name in names}


def recordings(task: str) -> list[Recording]:
    return [Recording(path) for path in sorted(FOLDER.glob(f"{task}__*.npz"))]


def all_recordings() -> list[Recording]:
    return [recording for task in sbtrpo.task_ids() for recording in recordings(task)]


def episodes(task: str) -> list[dict[str, Any]]:
    return json.loads((FOLDER / "episodes" / f"{task}.json").read_text())


class Replay:
    """A pool with one world for each step of a recording, to be filled with recorded states."""

    def __init__(self, recording: Recording, engine: str = "cpu") -> None:
        self.recording = recording
        self.pool: Pool = sbtrpo.make_pool(recording.task, num_worlds=len(recording), sleep=False, engine=engine)
        self.pool.reset()
        self.rows = self.pool.everyone

    @property
    def task(self) -> Any:
        return self.pool.task

    def place(self) -> None:
        """Give every world the recorded layout."""
        r, n = self.recording, len(self.recording)
        xy = np.concatenate([r["agent_xy"][None], r["layout_xy"]])
        turns = np.concatenate([r["agent_rot"][None], r["layout_rot"]])
        self.task.place(self.rows, np.tile(xy, (n, 1, 1)), np.tile(turns, (n, 1)))
        if "circle" in self.task.slices:
            self.task.retarget(self.rows, None)

    def load(self, qpos: Any, qvel: Any, time: Any, mocap: Any, ctrl: Any) -> None:
        """Write states, one for each world, and compute what follows from them."""
        physics = self.pool.physics
        for array, values in ((physics.qpos, qpos), (physics.qvel, qvel), (physics.time, time)):
            restore(array, values)
        if mocap.shape[1]:
            restore(physics.dragger, mocap[:, 0])
        restore(physics.ctrl, np.broadcast_to(np.clip(ctrl, -1, 1), physics.ctrl.shape))
        physics.forward()
        if isinstance(self.task, Navigation):
            self.task.refresh()

    def load_before(self, ctrl: Any = 0.0) -> None:
        """The state before each step, with the targets that then were."""
        r = self.recording
        self.load(
            r.before("qpos", r["reset_qpos"]),
            r.before("qvel", r["reset_qvel"]),
            r.before("time", r["reset_time"]),
            r.before("mocap_pos", r["reset_mocap_pos"]),
            ctrl,
        )
        if isinstance(self.task, Navigation):
            self.aim_before()
            self.task.remember(self.rows)

    def load_after(self) -> None:
        """The state after each step, the targets untouched."""
        r = self.recording
        self.load(r["qpos"], r["qvel"], r["time"], r["mocap_pos"], r["action"])

    def aim_before(self) -> None:
        """The targets before each step."""
        r, worlds = self.recording, self.task.worlds
        if "first_goal_xy" in r:
            goal = self.task.slices["goal"].start
            start = np.append(r["layout_xy"][goal], r["layout_z"][goal])
            restore(worlds.objects[:, goal], r.before("goal_pos", start))
        if "goal_button" in r:
            restore(worlds.target, r.before("goal_button", r["reset_goal_button"]))
            restore(worlds.timer, r.before("button_timer", 0))
        self.task.refresh()

    def aim_after(self) -> None:
        """The targets after each step."""
        r, worlds = self.recording, self.task.worlds
        if "first_goal_xy" in r:
            restore(worlds.objects[:, self.task.slices["goal"].start], r["goal_pos"])
        if "goal_button" in r:
            restore(worlds.target, r["goal_button"])
            restore(worlds.timer, r["button_timer"])
        self.task.refresh()
