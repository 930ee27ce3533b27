from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sbtrpo.learning.metrics import WINDOW, EpisodeWindows
from sbtrpo.runs.intervals import clopper_pearson_upper, wilson_interval


def test_epoch_statistics_by_hand() -> None:
    windows = EpisodeWindows()
    windows.add([4.0, 2.0], [0.0, 3.0], [10, 20])
    windows.add([6.0], [0.0], [30])
    found = windows.epoch_statistics()
    # The window means after each of the three episodes, then their mean.
    assert found["reward"] == pytest.approx((4 + 3 + 4) / 3)
    assert found["cost"] == pytest.approx((0 + 1.5 + 1) / 3)
    assert found["length"] == pytest.approx((10 + 15 + 20) / 3)
    assert found["safety_probability"] == pytest.approx((1 + 1 / 2 + 2 / 3) / 3)
    assert found["safe_reward"] == pytest.approx((4 + 4 / 2 + 10 / 3) / 3)
    assert found["episodes"] == 3


def test_windows_reach_back_over_epochs_and_forget_the_fifty_first() -> None:
    windows = EpisodeWindows()
    windows.add([100.0], [0.0], [1])
    windows.epoch_statistics()
    windows.add(np.zeros(WINDOW), np.zeros(WINDOW), np.ones(WINDOW))
    expected = np.mean([100 / n for n in range(2, WINDOW + 1)] + [0.0])  # the last episode pushes the first one out
    assert windows.epoch_statistics()["reward"] == pytest.approx(expected)


def test_an_epoch_without_episodes_repeats_the_last_statistics() -> None:
    windows = EpisodeWindows()
    before = windows.epoch_statistics()
    assert math.isnan(before["reward"])
    assert before["episodes"] == 0
    windows.add([1.0, 2.0], [0.0, 1.0], [5, 5])
    first = windows.epoch_statistics()
    windows.add([], [], [])
    assert windows.epoch_statistics() == first | {"episodes": 0}


@given(st.integers(0, 2**32), st.integers(0, 130))
def test_restored_windows_continue_bit_for_bit(seed: int, seen: int) -> None:
    rng = np.random.default_rng(seed)
    episodes = rng.normal(size=(3, 140)) * np.array([[1.0], [0.0], [1e3]]) + rng.integers(0, 2, (3, 140))
    whole, first, second = EpisodeWindows(), EpisodeWindows(), EpisodeWindows()
    whole.add(*episodes[:, :seen])
    first.add(*episodes[:, :seen])
    state = first.state_dict()
    assert all(type(part) is np.ndarray for part in state.values())
    first.add(*episodes)  # which must not reach into the state taken before
    second.load_state_dict(state)
    for windows in (whole, second):
        windows.add(*episodes[:, seen:])
    assert whole.epoch_statistics() == second.epoch_statistics()


def test_episodes_of_unlike_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="must be of one shape"):
        EpisodeWindows().add([1.0, 2.0], [0.0], [3])


@given(st.integers(1, 500), st.floats(0, 1), st.sampled_from([0.8, 0.95, 0.99]))
def test_intervals_agree_with_scipy(n: int, share: float, confidence: float) -> None:
    count = round(share * n)
    test = stats.binomtest(count, n, alternative="two-sided")
    wilson = test.proportion_ci(confidence, method="wilson")
    assert wilson_interval(count, n, confidence) == pytest.approx((wilson.low, wilson.high), abs=1e-12)
    exact = stats.binomtest(count, n, alternative="less").proportion_ci(confidence, method="exact")
    assert clopper_pearson_upper(count, n, confidence) == pytest.approx(exact.high, abs=1e-9)


def test_none_of_a_hundred_failing_bounds_the_probability_below_three_in_a_hundred() -> None:
    assert clopper_pearson_upper(0, 100) == pytest.approx(1 - 0.05 ** (1 / 100))
    assert clopper_pearson_upper(0, 100, confidence=0.975) == pytest.approx(0.0362, abs=5e-5)
    assert clopper_pearson_upper(100, 100) == 1.0
    assert wilson_interval(0, 100)[0] == 0.0
    assert wilson_interval(100, 100)[1] == 1.0


@pytest.mark.parametrize(("count", "n", "confidence"), [(0, 0, 0.95), (-1, 5, 0.95), (6, 5, 0.95), (1, 5, 95)])
def test_impossible_counts_are_refused(count: int, n: int, confidence: float) -> None:
    for function in (wilson_interval, clopper_pearson_upper):
        with pytest.raises(ValueError, match="must be"):
            function(count, n, confidence)
