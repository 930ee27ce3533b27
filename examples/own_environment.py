"""Two environments of one's own, with a cost, and a policy trained on one of them.

    python examples/own_environment.py

or, from this folder, with the command line:

    sbtrpo check own_environment:Reservoir-v0
    sbtrpo train own_environment:Reservoir-v0 --steps-per-epoch 4000 --total-steps 200000
    sbtrpo train own_environment:LavaGrid-v0 --steps-per-epoch 4000 --total-steps 200000
"""

from __future__ import annotations

import tempfile
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

Info = dict[str, Any]


class Reservoir(gymnasium.Env[Any, Any]):
    """A reservoir with a turbine: a higher level yields more power, but above the brim the village is flooded.

    An action opens the gate, 0 (shut) to 1. Power is flow times level. The inflow wanders at random. Each step with the
    level above `BRIM` costs 1.
    """

    BRIM = 0.8

    def __init__(self) -> None:
        self.observation_space = spaces.Dict(
            {"level": spaces.Box(0.0, 1.0, (1,), np.float64), "inflow": spaces.Box(0.0, 0.08, (1,), np.float64)}
        )
        self.action_space = spaces.Box(0.0, 1.0, (1,), np.float32)
        self._level = self._inflow = 0.0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Begin half full."""
        super().reset(seed=seed)
        self._level, self._inflow = self.np_random.uniform(0.3, 0.6), 0.04
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Open the gate for an hour."""
        flow = min(0.1 * float(action[0]), self._level)
        power = flow * self._level
        self._inflow = float(np.clip(self._inflow + self.np_random.normal(0.0, 0.01), 0.0, 0.08))
        self._level = min(self._level - flow + self._inflow, 1.0)
        flooded = self._level > self.BRIM
        return self._observe(), 10 * power, False, False, {"cost": float(flooded), "power": power}

    def _observe(self) -> dict[str, Any]:
        return {"level": np.array([self._level]), "inflow": np.array([self._inflow])}


class LavaGrid(gymnasium.Env[Any, Any]):
    """A walk on a grid from the left to the right: straight through the lava, or around it.

    Actions are right, up, left, down. A step takes 0.02 from the reward, the goal gives 1 and ends the episode; a step
    onto lava costs 1.
    """

    SIZE = 7
    MOVES = ((1, 0), (0, 1), (-1, 0), (0, -1))

    def __init__(self) -> None:
        self.observation_space = spaces.MultiDiscrete([self.SIZE, self.SIZE])
        self.action_space = spaces.Discrete(4)
        self._place = (0, 0)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Begin at the left edge."""
        super().reset(seed=seed)
        self._place = (0, int(self.np_random.integers(self.SIZE)))
        return np.array(self._place), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Go one square, unless a wall is there."""
        x, y = (int(np.clip(p + d, 0, self.SIZE - 1)) for p, d in zip(self._place, self.MOVES[action], strict=True))
        self._place = (x, y)
        in_lava = x == self.SIZE // 2 and y > 0  # row 0 is the bridge
        arrived = x == self.SIZE - 1
        info = {"cost": float(in_lava), "goal_met": arrived}
        return np.array(self._place), arrived - 0.02, arrived, False, info


# The entry points are strings, so that it does not matter whether this file was imported or run.
for _name, _steps in (("Reservoir", 200), ("LavaGrid", 60)):
    if f"{_name}-v0" not in gymnasium.registry:
        gymnasium.register(f"{_name}-v0", f"own_environment:{_name}", max_episode_steps=_steps)


def main() -> None:
    """Train on the reservoir, and see how often the village stays dry."""
    import sbtrpo

    config = sbtrpo.TrainConfig(
        task="own_environment:Reservoir-v0",
        num_envs=20,
        steps_per_epoch=4000,
        total_steps=160_000,
        advantage="mc-linear",
    )
    with tempfile.TemporaryDirectory() as folder:
        run = sbtrpo.train(config, out=folder)
        found = sbtrpo.evaluate(run, episodes=100)
    print(f"return {found.reward:.1f}, cost {found.cost:.2f}, safe episodes {found.safety_probability:.0%}")


if __name__ == "__main__":
    main()
