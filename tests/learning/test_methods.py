"""Every method on the corridor, at a limit that can be kept with reward to gain, and at limit 0.

Without a limit the corridor gives 9.5 an episode and costs 45; without any cost it gives 5. A random policy gets 0 and
costs between 0 and 20. SB-TRPO, which knows no limit, has tests of its own (`test_toy.py`).

Runs here have 30 or 40 epochs instead of 1000, of 20 episodes: networks are smaller than the published ones, learning
rates three to ten times as large. The marks were set before the runs that they judge; beside them is what was seen.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from sbtrpo.catalogue import METHODS
from sbtrpo.config import TrainConfig
from sbtrpo.training import Trainer

pytestmark = pytest.mark.slow

SMALL: dict[str, Any] = {
    "task": "ToyCorridor-v0",
    "num_envs": 20,
    "steps_per_epoch": 1000,
    "hidden": (16, 16),
    "threads": 1,
}
FASTER = {
    "trust region": {"critic_learning_rate": 3e-3, "critic_batch": 250, "critic_passes": 5},
    "first order": {
        "learning_rate": 3e-3,
        "policy_batch": 250,
        "policy_passes": 10,
        "critic_learning_rate": 3e-3,
        "critic_batch": 250,
    },
}


class Run:
    """A training run's columns."""

    def __init__(self, algo: str, seed: int, limit: float, epochs: int, **settings: Any) -> None:
        chosen = {**SMALL, **FASTER[METHODS[algo].family], **settings}
        trainer = Trainer(TrainConfig(algo=algo, seed=seed, cost_limit=limit, total_steps=1000 * epochs, **chosen))
        self.rows = [trainer.run_epoch().row for _ in range(epochs)]
        assert trainer.skipped_in_a_row == 0

    def __getitem__(self, name: str) -> list[float]:
        return [row[name] for row in self.rows]

    def end(self, name: str) -> float:
        """Mean over the last ten epochs."""
        return float(np.mean(self[name][-10:]))


# ---- a limit of 10 -------------------------------------------------------------------------------------------------

LIMIT = 10.0
SWINGING = {"cpo", "pcpo", "crpo", "pcrpo"}
"""They turn round when the cost is beyond its limit, and learn of it from a window of 50 episodes, 2.5 epochs late."""
IGNORANT = {"trpo", "ppo"}
LIMITED = [name for name in METHODS if not name.startswith("sb-trpo") and name not in IGNORANT]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("algo", LIMITED)
def test_constrained_methods_end_feasible_and_with_reward(algo: str, seed: int) -> None:
    # Multipliers start at 2, since a run is too short to wait for them. From 1, λ of TRPO-Lag and RCPO had fallen to 0
    # in epoch 20 of seed 1, and Adam's moments, full of epochs below the limit, kept it there while cost rose to 44.
    # Seen: rewards from 4.2 to 5.9, costs from 0 to 12.9 for those that swing, and from 0 to 7.6 for the others.
    run = Run(algo, seed, LIMIT, 40, fidelity="corrected", multiplier_init=2.0)
    assert run.end("reward") > 3.0
    assert run.end("cost") <= (1.5 * LIMIT if algo in SWINGING else LIMIT)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("algo", sorted(IGNORANT))
def test_unconstrained_methods_take_the_fast_ground(algo: str, seed: int) -> None:
    run = Run(algo, seed, LIMIT, 40, fidelity="corrected")
    assert run.end("reward") > 8.0  # seen: 9.4 to 9.5
    assert run.end("cost") > 30.0  # seen: 44.8 to 45.4


# ---- a limit of 0, as published --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expectation:
    reward: float | None = None
    """At least so much of it; None where the method does not care for reward at limit 0, or only at times."""
    comes_down: bool = False
    """The cost rises first, until the multiplier has grown."""
    stalls: bool = False
    """Most updates find no acceptable step."""
    grows: bool = False
    """The multiplier never falls."""
    pinned: dict[str, float] | None = None
    """Numbers that stay where they are from some time on."""


EXPECTED = {
    "ppo_lag": Expectation(reward=2.0, comes_down=True, grows=True),
    "trpo_lag": Expectation(comes_down=True, grows=True),
    "rcpo": Expectation(comes_down=True, grows=True),
    "cppo_pid": Expectation(reward=2.0, comes_down=True),
    "focops": Expectation(reward=2.0, comes_down=True, grows=True),
    "cup": Expectation(reward=2.0, grows=True, pinned={"multiplier": 0.2}),
    "appo": Expectation(reward=2.0, grows=True),
    "p3o": Expectation(reward=2.0, pinned={"penalty": 10.0}),
    "c3po": Expectation(reward=2.0),
    "cpo": Expectation(stalls=True),
    "pcpo": Expectation(),
    "c_trpo": Expectation(pinned={"recovering": 1.0}),  # led by its cost critic's errors: rewards of -4.8 and 1.2
    "crpo": Expectation(reward=2.0),
    "pcrpo": Expectation(),
}
"""Seen: costs from 0 to 0.8; rewards above 3.8 where some are expected; -1.0 and -0.8 for CPO, stalled in five of six
updates."""


def test_something_is_expected_of_every_method_with_a_limit() -> None:
    assert set(EXPECTED) == set(LIMITED)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("algo", EXPECTED)
def test_at_limit_zero_methods_behave_as_documented(algo: str, seed: int) -> None:
    expected, run = EXPECTED[algo], Run(algo, seed, 0.0, 30)
    assert run.end("cost") <= 2.0
    if expected.reward is not None:
        assert run.end("reward") > expected.reward
    if expected.comes_down:
        assert max(run["cost"]) > 3.0
    if expected.grows:
        assert all(before <= after for before, after in itertools.pairwise(run["multiplier"]))
    if expected.stalls:
        assert np.mean([step == 0.0 for step in run["accepted_step"]]) > 0.5
        assert run.end("reward") < 1.0
    for name, value in (expected.pinned or {}).items():
        assert run[name][-10:] == [value] * 10
