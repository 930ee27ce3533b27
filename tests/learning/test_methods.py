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
RUNNING_OUT = [
    *(("paper", name) for name in ("cup", "cppo_pid", "appo")),
    *(("corrected", name) for name in ("cppo_pid", "appo")),
]
"""Whose multiplier is 0 again after 6 to 24 epochs below the limit; they are judged over ten seeds."""


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("fidelity", "algo"), [pair for pair in itertools.product(FIDELITIES, KEEPING) if pair not in RUNNING_OUT]
)
def test_constrained_methods_end_feasible_and_with_reward(fidelity: str, algo: str, seed: int) -> None:
    """Over the last ten epochs, as published and corrected.

    Some multipliers start at 2, since a run is too short to wait for them: from 0.001 PPO-Lag ended at up to 45
    corrected and walking backwards as published (seeds 4 and 5), TRPO-Lag corrected at up to 45. At a rate of 0.035 an
    epoch the start lasts for the whole run: λ ends at 0.56 or above. As published TRPO-Lag, RCPO and FOCOPS start where
    they do by default, and the cost comes down from up to 45. PCRPO takes combined steps up to `slack_above` over the
    limit and stays there: with its own 5 corrected runs ended at 12 to 14. At 0 the limit is one.

    Seen: costs from 0 to 7.3 as published and to 7.4 corrected, rewards from 4.5 to 5.5. Seeds 3 to 9 end feasible,
    too, at up to 7.9 and 8.7, and with reward, but for FOCOPS as published in seed 4, which walks backwards.
    """
    run = Run(algo, seed, LIMIT, 40, fidelity=fidelity, **AT_THE_LIMIT.get((fidelity, algo), {}))
    assert run.end("cost") <= LIMIT
    assert run.end("reward") > ENOUGH


@pytest.mark.parametrize(("fidelity", "algo"), RUNNING_OUT)
def test_methods_whose_multiplier_runs_out_mostly_end_feasible_and_with_reward(fidelity: str, algo: str) -> None:
    """Most of ten runs do, and over all epochs of all runs the mean cost is within the limit.

    A policy that walks slowly costs nothing, so λ falls: CUP's, bounded by 0.2, is 0 in epoch 6 to 11; APPO's, which
    moves by 0.2 an epoch, in epoch 9 to 24 (but for one run); a PID controller's, whose integral loses 0.1 an epoch, in
    epoch 14 to 21 (as published, from 0.001, in the first). A run that finds the fast ground only then does so without
    a penalty: cost rises, to 20 to 43, until λ has grown again, comes down, and may rise once more. Whether the last
    ten epochs lie on such a hill is chance: other initial weights move it to other seeds, and runs of 120 epochs have
    further hills.

    Seen, in the order above: 8, 8, 8, 7 and 8 of 10 end feasible and with reward, the others at costs of 35 and 41, 11
    and 19, 10.3 and 10.6, 30 to 36, 11 and 17. Means over all epochs: 3.6, 7.4, 2.0, 4.3 and 3.5. From weights drawn in
    another order the first four had 10, 9, 9 and 10 of 10.
    """
    settings = AT_THE_LIMIT.get((fidelity, algo), {})
    runs = [Run(algo, seed, LIMIT, 40, fidelity=fidelity, **settings) for seed in range(10)]
    assert sum(run.end("cost") <= LIMIT and run.end("reward") > ENOUGH for run in runs) >= 6
    assert np.mean([run["cost"].mean() for run in runs]) <= LIMIT
    for run in runs:
        if run.end("cost") > LIMIT:  # λ has grown again: seen from 0 to between 0.1 and 4.8
            assert max(run["multiplier"][-10:]) > min(run["multiplier"])


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

    Seen: over all of the last 25 epochs costs from 8.6 to 12.0; in the 11 to 14 of them that were feasible to the
    method costs from 3.9 to 7.6 and rewards from 3.7 to 5.3.
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
    assert run.end("reward") < 1.0  # seen: -1.6 to 0.3


def cost_steps_then_no_rise_of_cost(run: Run) -> None:
    """Nearly a pure cost step while there is cost: shrunk, and nearer to cost's descent than to reward's ascent."""
    free = run["cost_statistic"] == 0.0
    assert (run["projection"][~free] > 0).all()
    assert (run["accepted_step"][~free] < 0.5).all()  # seen: up to 0.11
    assert (run["angle_c"][~free] < run["angle_r"][~free]).all()  # seen: 27 to 51 degrees, and 84 to 142
    assert (run["surrogate_c_change"][~free] < 0).all()
    assert (run["surrogate_c_change"][free] <= 0).all()


def steps_along_the_plane_shrink_to_nothing(run: Run) -> None:
    """Where a reward step would raise cost: 15 of 16, 22 of 22 and 25 of 25 updates; rewards of 3.1, -0.5 and -1.4."""
    conflicts = (run["cost_statistic"] == 0.0) & (run["projection"] > 0)
    if conflicts.any():
        assert np.mean(run["accepted_step"][conflicts] < 1e-3) > 0.5


def recovers_for_good(run: Run) -> None:
    """Led by its cost critic's errors once there is no cost: rewards of 4.4, -2.7 and -4.4."""
    assert (run["recovering"] == 1.0).all()
    assert (run["surrogate_c_change"] <= 0).all()


def reward_has_its_turn_without_cost_only(run: Run) -> None:
    assert (run["feasible"] == (run["cost_statistic"] == 0.0)).all()
    assert set(run["feasible"]) == {0.0, 1.0}


def reward_alone_never_has_its_turn(run: Run) -> None:
    """Cost alone beyond a cost of 5, both below; reward is served by that, if less than by a step of its own."""
    assert (run["regime"] == np.where(run["cost_statistic"] > 5.0, -1.0, 0.0)).all()
    assert np.mean(run["surrogate_r_change"] > 0) > 0.5
    assert run.end("reward") > 1.0  # seen: 3.2 to 4.8


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
    """Seen: costs from 0 to 0.9; rewards of at least 2.5 where some are expected.

    FOCOPS' cost still comes down in epoch 20: over the last ten of 30 epochs seeds 0 to 9 cost up to 1.9, of 40 0.4.
    """
    run = Run(algo, seed, 0.0, 40 if algo == "focops" else 30)
    assert run.end("cost") <= 1.0
    for as_documented in AT_ZERO[algo]:
        as_documented(run)
