"""Every method on the corridor, at a limit that can be kept with reward to gain, and at limit 0.

Without a limit the corridor gives 9.5 an episode and costs 45; without any cost it gives 5. A policy that does nothing
gets 0; a random one gets 0, too, and costs between 0 and 20. SB-TRPO, which knows no limit, has tests of its own
(`test_toy.py`).

Runs here have 30 to 50 epochs instead of 1000, of 20 or 50 episodes: networks are smaller than the published ones,
learning rates three to ten times as large. Beside the marks is what was seen.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sbtrpo.config import catalogue
from sbtrpo.learning.trainer import Trainer
from sbtrpo.runs.evaluation import play
from tests.settings import config_of

pytestmark = pytest.mark.slow

SEEDS = range(3)
FIDELITIES = ["paper", "corrected"]
SMALL: dict[str, Any] = {
    "task": "ToyCorridor-v0",
    "num_envs": 20,
    "steps_per_epoch": 1000,
    "hidden": (16, 16),
    "threads": 1,
}
PROMPT = {"num_envs": 50, "steps_per_epoch": 2500}
"""Epochs as long as the window of 50 episodes that methods read the cost from: it lags by half an epoch, not by 2."""
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
    """A training run's columns; `reward` and `cost` are means over an epoch's own episodes, not over windows.

    In the last `judged` epochs the policy also plays 200 episodes that training does not see, before it is updated:
    `fresh_reward` and `fresh_cost`.
    """

    def __init__(self, algo: str, seed: int, limit: float, epochs: int, judged: int = 0, **settings: Any) -> None:
        chosen = {**SMALL, **FASTER[catalogue.method(algo).family], **settings}
        steps = chosen["steps_per_epoch"] * epochs
        trainer = Trainer(config_of(algo, seed=seed, cost_limit=limit, total_steps=steps, **chosen))
        self.rows: list[dict[str, float]] = []
        for epoch in range(epochs):
            fresh = {}
            if epoch >= epochs - judged:
                found, _ = play(trainer.policy, chosen["task"], 200, 1000 + epoch, False, 1)
                fresh = {"fresh_reward": float(found["return"].mean()), "fresh_cost": float(found["cost"].mean())}
            done = trainer.run_epoch()
            means = {"reward": float(done.episodes["return"].mean()), "cost": float(done.episodes["cost"].mean())}
            self.rows.append({**done.row, **means, **fresh})
        assert trainer.skipped_in_a_row == 0

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        return np.array([row[name] for row in self.rows])

    def end(self, name: str) -> float:
        """Mean over the last ten epochs."""
        return float(self[name][-10:].mean())


# ---- a limit of 10 -------------------------------------------------------------------------------------------------

LIMIT = 10.0
ENOUGH = 3.0
"""Reward that takes walking: 0.06 a step of the 0.1 that are to be had without cost."""
SWINGING = ["cpo", "pcpo", "crpo"]
IGNORANT = ["trpo", "ppo"]
LIMITED = [name for name in catalogue.BUILT_IN if not name.startswith("sb-trpo") and name not in IGNORANT]
KEEPING = [name for name in LIMITED if name not in SWINGING]

HEAD_START = {"multiplier_init": 2.0}
AT_THE_LIMIT: dict[tuple[str, str], dict[str, Any]] = {
    **{
        ("corrected", name): HEAD_START for name in ("ppo_lag", "trpo_lag", "rcpo", "cppo_pid", "focops", "cup", "appo")
    },
    **{("paper", name): HEAD_START for name in ("ppo_lag", "cup", "appo")},
    **{(fidelity, "pcrpo"): {"slack_above": 0.0, **PROMPT} for fidelity in FIDELITIES},
}
"""What is not a method's own setting."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("algo", KEEPING)
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_constrained_methods_end_feasible_and_with_reward(fidelity: str, algo: str, seed: int) -> None:
    """Over the last ten epochs, as published and corrected.

    Some multipliers start at 2, since a run is too short to wait for them. Corrected and from 1, λ of TRPO-Lag and RCPO
    had fallen to 0 in epoch 20 of seed 1, and Adam's moments, full of epochs below the limit, kept it there while cost
    rose to 44. As published TRPO-Lag, RCPO, CPPO-PID and FOCOPS start where they do by default, and the cost comes down
    from up to 44 (seeds 0 to 5 all end feasible). The other three do not get there in time: from its own start
    PPO-Lag ended at 43 in seed 4, APPO at 11.6 and 10.7 in seeds 0 and 2; CUP, whose multiplier is bounded by 0.2, at
    a cost of 27 in seed 0 and walking backwards in seed 1. PCRPO takes combined steps up to `slack_above` over the
    limit and stays there: with its own 5 corrected runs ended at 12 to 14. At 0 the limit is one.

    Seen: costs from 0 to 7.0 as published and to 8.9 corrected, rewards from 4.2 to 5.8.
    """
    run = Run(algo, seed, LIMIT, 40, fidelity=fidelity, **AT_THE_LIMIT.get((fidelity, algo), {}))
    assert run.end("cost") <= LIMIT
    assert run.end("reward") > ENOUGH


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("algo", SWINGING)
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_switching_methods_circle_the_limit_and_are_feasible_where_they_think_so(
    fidelity: str, algo: str, seed: int
) -> None:
    """Weaker than what is asked of the others: the mean over all epochs is within a quarter of the limit.

    These three climb on reward while the window's cost is within its limit and descend on cost while it is not. CPO's
    and PCPO's linear model could hold them at the limit, but it sets an episode's cost beside a mean over steps, and so
    sees little between "all of the region is feasible" and "none is". Reward costs here, so they circle the limit, and
    their mean cost is about the limit itself: half of the epochs lie above it. Longer runs and smaller steps narrow the
    circle, but do not move it: in 80 epochs at a `target_kl` of 0.003 the last 40 cost 9.4 to 10.7.

    Feasible are the policies that they take for it, by `cost_statistic`: among these CRPO's theory picks the one to
    return. They are judged by episodes of their own, since the ones that they were picked by flatter them.

    Seen: over all of the last 25 epochs costs from 8.0 to 11.1; in the 12 to 14 of them that were feasible to the
    method costs from 3.4 to 8.3 and rewards from 3.9 to 5.5.
    """
    run = Run(algo, seed, LIMIT, 50, judged=25, fidelity=fidelity, **PROMPT)
    feasible = run["cost_statistic"][-25:] <= LIMIT
    judged = run.rows[-25:]
    assert feasible.sum() >= 8
    assert np.mean([row["fresh_cost"] for row in itertools.compress(judged, feasible)]) <= LIMIT
    assert np.mean([row["fresh_reward"] for row in itertools.compress(judged, feasible)]) > ENOUGH
    assert run["cost"][-25:].mean() <= 1.25 * LIMIT


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("algo", IGNORANT)
@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_unconstrained_methods_take_the_fast_ground(fidelity: str, algo: str, seed: int) -> None:
    run = Run(algo, seed, LIMIT, 40, fidelity=fidelity)
    assert run.end("reward") > 8.0  # seen: 9.2 to 9.5
    assert run.end("cost") > 30.0  # seen: 43.4 to 45.3


# ---- a limit of 0, as published: what docs/algorithms says of it -----------------------------------------------------


def earns(run: Run) -> None:
    assert run.end("reward") > 2.0


def comes_down(run: Run) -> None:
    """The cost is high first, until the multiplier has grown."""
    assert max(run["cost"]) > 3.0


def multiplier_never_falls(run: Run) -> None:
    assert (np.diff(run["multiplier"]) >= 0).all()
    assert run["multiplier"][-1] > run["multiplier"][0]


def integral_never_falls(run: Run) -> None:
    """λ is at least its integral, which grows by 0.01 of the cost; the other terms are not negative at limit 0."""
    assert (run["multiplier"] >= 0.001 + 0.01 * np.cumsum(run["cost_statistic"]) - 1e-9).all()


def multiplier_stays_below(bound: float) -> Callable[[Run], None]:
    def check(run: Run) -> None:
        assert max(run["multiplier"]) <= bound

    return check


def multiplier_ends_at(bound: float) -> Callable[[Run], None]:
    def check(run: Run) -> None:
        assert (run["multiplier"][-10:] == bound).all()

    return check


def a_tenth_of_the_cost_comes_on_top(run: Run) -> None:
    assert run["penalty"] == pytest.approx(run["multiplier"] + 0.1 * run["cost_statistic"])


def penalty_is_ten(run: Run) -> None:
    assert (run["penalty"] == 10.0).all()


def penalty_grows_from_5_to_50(run: Run) -> None:
    assert run["penalty"] == pytest.approx(np.linspace(5.0, 50.0, len(run.rows), endpoint=False))


def stalls_once_there_is_no_cost(run: Run) -> None:
    """Cost steps before, steps that are rejected or vanish afterwards; reward stays where it was."""
    free = run["cost_statistic"] == 0.0
    assert free[-10:].all()
    assert set(run["case"]) <= {0.0, 1.0}
    assert (run["surrogate_c_change"][~free] < 0).all()
    assert np.mean(run["kl"][free] < 1e-6) > 0.9  # seen: all of them
    assert run.end("reward") < 1.0  # seen: -1.0 to 0.0


def cost_steps_then_no_rise_of_cost(run: Run) -> None:
    """Nearly a pure cost step while there is cost: shrunk, and nearer to cost's descent than to reward's ascent."""
    free = run["cost_statistic"] == 0.0
    assert (run["projection"][~free] > 0).all()
    assert (run["accepted_step"][~free] < 0.5).all()  # seen: up to 0.26
    assert (run["angle_c"][~free] < run["angle_r"][~free]).all()  # seen: 31 to 50 degrees, and 68 to 125
    assert (run["surrogate_c_change"][~free] < 0).all()
    assert (run["surrogate_c_change"][free] <= 0).all()


def steps_along_the_plane_shrink_to_nothing(run: Run) -> None:
    """Where a reward step would raise cost: 4 of 4, 21 of 23 and 1 of 1 such updates; rewards of 4.9, 1.7 and 4.7."""
    conflicts = (run["cost_statistic"] == 0.0) & (run["projection"] > 0)
    if conflicts.any():
        assert np.mean(run["accepted_step"][conflicts] < 1e-3) > 0.5


def recovers_for_good(run: Run) -> None:
    """Led by its cost critic's errors once there is no cost: rewards of -4.8, 1.8 and 4.7."""
    assert (run["recovering"] == 1.0).all()
    assert (run["surrogate_c_change"] <= 0).all()


def reward_has_its_turn_without_cost_only(run: Run) -> None:
    assert (run["feasible"] == (run["cost_statistic"] == 0.0)).all()
    assert set(run["feasible"]) == {0.0, 1.0}


def reward_alone_never_has_its_turn(run: Run) -> None:
    """Cost alone beyond a cost of 5, both below; reward is served by that, if less than by a step of its own."""
    assert (run["regime"] == np.where(run["cost_statistic"] > 5.0, -1.0, 0.0)).all()
    assert np.mean(run["surrogate_r_change"] > 0) > 0.5
    assert run.end("reward") > 1.0  # seen: 2.5 to 4.7


AT_ZERO: dict[str, tuple[Callable[[Run], None], ...]] = {
    "ppo_lag": (comes_down, multiplier_never_falls, earns),
    "trpo_lag": (comes_down, multiplier_never_falls),
    "rcpo": (comes_down, multiplier_never_falls),
    "cppo_pid": (comes_down, integral_never_falls, earns),
    "focops": (comes_down, multiplier_never_falls, multiplier_stays_below(2.0), earns),
    "cup": (multiplier_never_falls, multiplier_ends_at(0.2), earns),
    "appo": (multiplier_never_falls, a_tenth_of_the_cost_comes_on_top, earns),
    "p3o": (penalty_is_ten, earns),
    "c3po": (penalty_grows_from_5_to_50, earns),
    "cpo": (stalls_once_there_is_no_cost,),
    "pcpo": (cost_steps_then_no_rise_of_cost, steps_along_the_plane_shrink_to_nothing),
    "c_trpo": (recovers_for_good,),
    "crpo": (reward_has_its_turn_without_cost_only, earns),
    "pcrpo": (reward_alone_never_has_its_turn,),
}


def test_something_is_expected_of_every_method_with_a_limit() -> None:
    assert set(AT_ZERO) == set(LIMITED)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("algo", AT_ZERO)
def test_at_limit_zero_methods_behave_as_documented(algo: str, seed: int) -> None:
    """Seen: costs from 0 to 0.7; rewards of at least 3.9 where some are expected."""
    run = Run(algo, seed, 0.0, 30)
    assert run.end("cost") <= 1.0
    for as_documented in AT_ZERO[algo]:
        as_documented(run)
