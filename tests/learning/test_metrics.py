from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from sbtrpo.learning.metrics import STATISTICS, WINDOW, EpisodeWindows, Floats
from sbtrpo.runs import checkpoint
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


class LoopedWindows:
    """The published rule, an episode at a time."""

    def __init__(self) -> None:
        self.window = self.noted = np.empty((0, 5))

    def add(self, returns: Floats, costs: Floats, lengths: Floats) -> None:
        safe = costs == 0
        for episode in np.stack([returns, costs, lengths, safe, np.where(safe, returns, 0.0)], axis=1):
            self.window = np.concatenate([self.window, episode[None]])[-WINDOW:]
            self.noted = np.concatenate([self.noted, self.window.mean(axis=0)[None]])

    def epoch_statistics(self) -> list[float]:
        statistics: list[float] = self.noted.mean(axis=0).tolist()
        self.noted = self.noted[:0]
        return statistics


def random_episodes(rng: np.random.Generator, count: int) -> tuple[Floats, Floats, Floats]:
    """Returns of many magnitudes, among them zeros of both signs; about half of the episodes are safe."""
    returns = rng.normal(size=count) * 10.0 ** rng.integers(-9, 9, count) * rng.choice([0.0, -0.0, 1.0], count)
    return returns, rng.exponential(size=count) * rng.integers(0, 2, count), rng.integers(1, 1000, count).astype(float)


def split(rng: np.random.Generator, episodes: tuple[Floats, ...]) -> list[list[Floats]]:
    """The same episodes in several calls."""
    cuts = np.sort(rng.integers(0, len(episodes[0]) + 1, rng.integers(0, 4)))
    return [list(call) for call in zip(*(np.split(column, cuts) for column in episodes), strict=True)]


def bits(statistics: dict[str, float]) -> bytes:
    return np.array([statistics[name] for name in STATISTICS]).tobytes()


@given(st.integers(0, 2**32), st.lists(st.integers(1, 2 * WINDOW), min_size=1, max_size=6))
def test_statistics_are_those_of_the_published_rule_bit_for_bit(seed: int, counts: list[int]) -> None:
    rng = np.random.default_rng(seed)
    ours, theirs = EpisodeWindows(whole_epochs=max(counts) <= WINDOW), LoopedWindows()
    for count in counts:
        episodes = random_episodes(rng, count)
        theirs.add(*episodes)
        for call in split(rng, episodes):
            ours.add(*call)
        state = ours.state_dict()
        assert state["window"].tobytes() == theirs.window.tobytes()
        assert state["noted"].tobytes() == theirs.noted.tobytes()
        assert bits(ours.epoch_statistics()) == np.array(theirs.epoch_statistics()).tobytes()


@given(st.integers(0, 2**32), st.integers(WINDOW + 1, 400))
def test_an_epoch_of_more_than_fifty_episodes_is_their_plain_mean_in_any_order(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    r, c, n = random_episodes(rng, count)
    before, order = random_episodes(rng, 30), rng.permutation(count)
    one, other = EpisodeWindows(whole_epochs=True), EpisodeWindows(whole_epochs=True)
    one.add(*before)  # an epoch that must not show in the next one
    one.epoch_statistics()
    for call in split(rng, (r, c, n)):
        one.add(*call)
    for call in split(rng, (r[order], c[order], n[order])):
        other.add(*call)
    statistics, shuffled = one.epoch_statistics(), other.epoch_statistics()
    assert bits(statistics) == bits(shuffled)
    columns = (r, c, n, c == 0, np.where(c == 0, r, 0.0))
    for name, column in zip(STATISTICS, columns, strict=True):
        scale = math.fsum(np.abs(column)) / count
        assert statistics[name] == pytest.approx(math.fsum(column) / count, rel=0, abs=1e-12 * scale)
    assert statistics["episodes"] == count


def test_fifty_episodes_follow_the_published_rule_and_the_next_one_changes_it() -> None:
    fifty, one_more = EpisodeWindows(whole_epochs=True), EpisodeWindows(whole_epochs=True)
    returns = np.arange(51.0)
    for windows, count in ((fifty, 50), (one_more, 51)):
        windows.add([1000.0], [0.0], [1])
        windows.epoch_statistics()
        windows.add(returns[:30], np.zeros(30), np.ones(30))
        windows.add(returns[30:count], np.zeros(count - 30), np.ones(count - 30))
    noted = [(1000 + returns[:k].sum()) / (k + 1) for k in range(1, 50)] + [returns[:50].mean()]
    assert fifty.epoch_statistics()["reward"] == pytest.approx(np.mean(noted))
    assert one_more.epoch_statistics()["reward"] == 25.0


@given(st.integers(0, 2**32), st.integers(WINDOW + 1, 200))
def test_a_large_epoch_leaves_its_last_fifty_episodes_in_the_window(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    r, c, n = random_episodes(rng, count)
    large, small = EpisodeWindows(whole_epochs=True), EpisodeWindows(whole_epochs=True)
    large.add(r, c, n)
    small.add(r[-WINDOW:], c[-WINDOW:], n[-WINDOW:])
    next_epoch = random_episodes(rng, 7)
    for windows in (large, small):
        windows.epoch_statistics()
        assert windows.state_dict()["window"].shape == (WINDOW, 5)
        windows.add(*next_epoch)
    assert bits(large.epoch_statistics()) == bits(small.epoch_statistics())


def test_further_columns_join_the_statistics_and_change_no_bit_of_the_others() -> None:
    rng = np.random.default_rng(0)
    plain, further = EpisodeWindows(whole_epochs=True), EpisodeWindows(whole_epochs=True)
    for count in (3, 40, 80, 5):
        episodes, hazards = random_episodes(rng, count), rng.exponential(size=count)
        plain.add(*episodes)
        split_at = count // 2
        for half in (slice(split_at), slice(split_at, None)):
            columns = {"safe_hazards": hazards[half] < 1, "cost_hazards": hazards[half]}
            ordered = columns if half.start else dict(reversed(columns.items()))
            further.add(*(column[half] for column in episodes), ordered)
        expected, statistics = plain.epoch_statistics(), further.epoch_statistics()
        assert list(statistics) == [*STATISTICS, "cost_hazards", "safe_hazards", "episodes"]
        assert {name: statistics[name] for name in expected} == expected
    # 80 episodes fill the window with their last 50; then five more come.
    recent = further.state_dict()["window"]
    assert recent.shape == (50, 7)
    assert recent[-5:, 5].tolist() == hazards.tolist()
    assert recent[-5:, 6].tolist() == (hazards < 1).tolist()


def test_further_columns_by_hand() -> None:
    windows = EpisodeWindows(whole_epochs=True)
    windows.add([1.0, 1.0], [0.0, 3.0], [5, 5], {"cost_hazards": [0.0, 2.0]})
    assert windows.epoch_statistics()["cost_hazards"] == 0.5  # the mean of 0 / 1 and (0 + 2) / 2
    many = np.arange(60.0)
    windows.add(many, many, many, {"cost_hazards": 2 * many})
    assert windows.epoch_statistics()["cost_hazards"] == 59.0


def test_named_columns_are_there_before_the_first_episode() -> None:
    windows = EpisodeWindows(["cost_hazards"])
    statistics = windows.epoch_statistics()
    assert math.isnan(statistics["cost_hazards"])
    windows.add([], [], [])
    windows.add([1.0], [2.0], [3], {"cost_hazards": [4.0]})
    after = windows.epoch_statistics()
    assert after["cost_hazards"] == 4.0
    assert list(after) == list(statistics)


@pytest.mark.parametrize("count", [3, 60])
def test_what_is_safe_may_be_said(count: int) -> None:
    told, by_cost = EpisodeWindows(), EpisodeWindows()
    returns, costs, lengths = np.arange(1.0, count + 1), np.full(count, 10.0), np.ones(count)
    safe = np.arange(count) % 2 == 0
    told.add(returns, costs, lengths, safe=safe)
    by_cost.add(returns, np.where(safe, 0.0, 10.0), lengths)
    ours, theirs = told.epoch_statistics(), by_cost.epoch_statistics()
    assert ours["cost"] == 10.0 != theirs["cost"]
    assert ours | {"cost": 0.0} == theirs | {"cost": 0.0}


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


@given(st.integers(0, 2**32), st.integers(0, 130))
def test_restored_windows_with_further_columns_continue_bit_for_bit(seed: int, seen: int) -> None:
    rng = np.random.default_rng(seed)
    *episodes, hazards = np.split(rng.normal(size=(4, 140)), 4)
    whole, first, second = EpisodeWindows(), EpisodeWindows(), EpisodeWindows(["cost_hazards"])
    for windows in (whole, first):
        windows.add(*(column[0, :seen] for column in episodes), {"cost_hazards": hazards[0, :seen]})
    second.load_state_dict(first.state_dict() if seen else EpisodeWindows(["cost_hazards"]).state_dict())
    for windows in (whole, second):
        windows.add(*(column[0, seen:] for column in episodes), {"cost_hazards": hazards[0, seen:]})
    assert whole.epoch_statistics() == second.epoch_statistics()


def test_the_state_of_earlier_versions_loads_and_is_still_the_state() -> None:
    rng = np.random.default_rng(1)
    old = LoopedWindows()
    old.add(*random_episodes(rng, 70))
    last = old.epoch_statistics()
    state = {"window": old.window, "noted": old.noted, "last": np.array(last)}
    windows = EpisodeWindows()
    windows.load_state_dict(state)
    again = windows.state_dict()
    assert list(again) == list(state)
    for name, values in state.items():
        assert again[name].dtype == values.dtype
        np.testing.assert_array_equal(again[name], values)
    episodes = random_episodes(rng, 20)
    old.add(*episodes)
    windows.add(*episodes)
    assert list(windows.epoch_statistics().values()) == [*old.epoch_statistics(), 20]


def test_a_state_with_columns_survives_a_checkpoint(tmp_path: Path) -> None:
    windows, restored = EpisodeWindows(), EpisodeWindows()
    windows.add([1.0, 3.0], [0.0, 1.0], [5, 5], {"cost_hazards": [0.0, 2.0], "safe_hazards": [True, False]})
    checkpoint.save(tmp_path / "state", windows.state_dict())
    restored.load_state_dict(checkpoint.load(tmp_path / "state"))
    assert restored.epoch_statistics() == windows.epoch_statistics()


def test_a_state_with_other_columns_is_refused() -> None:
    hazards, plain = EpisodeWindows(["cost_hazards"]), EpisodeWindows()
    plain.add([1.0], [0.0], [5])
    for windows, state in (
        (EpisodeWindows(["cost_hazards"]), plain.state_dict()),
        (EpisodeWindows(["cost_vases"]), hazards.state_dict()),
        (plain, hazards.state_dict()),
    ):
        with pytest.raises(ValueError, match=r"the state has the further columns .* that the run began with"):
            windows.load_state_dict(state)


def test_columns_that_change_or_have_taken_names_are_refused() -> None:
    windows = EpisodeWindows()
    windows.add([1.0], [0.0], [5], {"cost_hazards": [1.0]})
    for columns in (None, {"cost_vases": [1.0]}, {"cost_hazards": [1.0], "cost_vases": [1.0]}):
        with pytest.raises(ValueError, match=r"those before them \['cost_hazards'\]; add the same ones"):
            windows.add([1.0], [0.0], [5], columns)
    plain = EpisodeWindows()
    plain.add([1.0], [0.0], [5])
    with pytest.raises(ValueError, match="add the same ones"):
        plain.add([1.0], [0.0], [5], {"cost_hazards": [1.0]})
    for names in (["cost"], ["episodes"], ["a", "a"]):
        with pytest.raises(ValueError, match="each column needs a name of its own"):
            EpisodeWindows(names)


def test_episodes_of_unlike_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="must be of one shape"):
        EpisodeWindows().add([1.0, 2.0], [0.0], [3])
    with pytest.raises(ValueError, match=r"cost_hazards must be of the shape of returns, \(1,\), got \(2,\)"):
        EpisodeWindows().add([1.0], [0.0], [3], {"cost_hazards": [1.0, 2.0]})
    with pytest.raises(ValueError, match="safe must be of the shape of returns"):
        EpisodeWindows().add([1.0], [0.0], [3], safe=[True, False])


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
