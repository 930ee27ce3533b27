"""Random streams: uniform, independent, exact copies of NumPy's where asked."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from sbtrpo.envs.original import OriginalStreams
from sbtrpo.envs.streams import CounterStreams, make_streams, uniform


def test_counter_streams_are_splitmix64() -> None:
    """Published outputs of the generator from seed 1234567."""
    streams = CounterStreams(1, 0)
    streams.key[:] = 1234567
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    np.testing.assert_array_equal(uniform(streams, np.array([0]), 4)[0], [(x >> 11) * 2.0**-53 for x in expected])


def test_counter_streams_are_uniform_and_uncorrelated() -> None:
    values = uniform(CounterStreams(50, 3), np.arange(50), 2000)
    assert stats.kstest(values.ravel(), "uniform").pvalue > 0.01
    correlation = np.corrcoef(values)
    np.fill_diagonal(correlation, 0)
    assert np.abs(correlation).max() < 5 / np.sqrt(2000)
    lagged = np.corrcoef(values[:, :-1].ravel(), values[:, 1:].ravel())[0, 1]
    assert abs(lagged) < 4 / np.sqrt(values.size)
    counts = np.bincount(CounterStreams(4000, 1).integers(np.arange(4000), 4), minlength=4)
    assert stats.chisquare(counts).pvalue > 0.01


def test_seeds_purposes_and_forks_give_different_numbers() -> None:
    layout, episode = make_streams(2, 0)
    other, _ = make_streams(2, 1)
    child, rows = layout.fork(np.arange(2))
    assert len(rows) == 2 * layout.parallel
    drawn = [uniform(s, r, 3) for s, r in ((layout, [0, 1]), (episode, [0, 1]), (other, [0, 1]), (child, rows))]
    everything = np.concatenate(drawn).ravel()
    assert len(np.unique(everything)) == len(everything)


@pytest.mark.parametrize("seed", [0, 7, 2**31])
def test_original_streams_are_numpys_random_state(seed: int) -> None:
    streams = OriginalStreams(2, seed, "mt19937")
    references = [np.random.RandomState(seed + i) for i in range(2)]
    rows = np.arange(2)
    for count in (3, 1, 5000, 2, 9000):
        expected = np.stack([reference.random_sample(count) for reference in references])
        np.testing.assert_array_equal(uniform(streams, rows, count), expected)
        for high in (4, 3):
            expected = np.array([reference.randint(0, high) for reference in references])
            np.testing.assert_array_equal(streams.integers(rows, high), expected)
        for _ in range(count % 17):
            streams.tick()
            for reference in references:
                assert reference.binomial(10, 1.0) == 10


def test_original_streams_of_velocity_tasks_are_numpys_generator() -> None:
    streams, reference = OriginalStreams(1, 3, "pcg64"), np.random.default_rng(3)
    for _ in range(3):
        streams.tick()  # a step draws nothing here
        np.testing.assert_array_equal(uniform(streams, np.array([0]), 11)[0], reference.random(11))


@pytest.mark.parametrize("original", [None, "mt19937", "pcg64"])
def test_streams_continue_from_their_state(original: str | None) -> None:
    _, streams = make_streams(3, 5, original)  # type: ignore[arg-type]
    uniform(streams, np.arange(3), 6000)
    streams.tick()
    uniform(streams, np.array([1]), 10)
    streams.integers(np.array([2]), 4)
    streams.tick()
    _, restored = make_streams(3, 99, original)  # type: ignore[arg-type]
    restored.load_state_dict(streams.state_dict())
    for _ in range(2):
        np.testing.assert_array_equal(uniform(restored, np.arange(3), 700), uniform(streams, np.arange(3), 700))
        restored.tick()
        streams.tick()
