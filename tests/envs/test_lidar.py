"""The lidar against its definition, object by object and bin by bin."""

from __future__ import annotations

import math
from typing import Any

import array_api_compat.numpy as xp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sbtrpo.envs.lidar import BINS, ego, first_bins, lidar


def by_the_book(offset: Any, height: float, frame: Any, max_range: float) -> Any:
    """Readings of one kind in one world, as loops."""
    bins = np.zeros(BINS)
    width = 2 * math.pi / BINS
    for x, y in offset:
        e = (frame.T @ np.array([x, y, -height]))[:2]
        angle = math.atan2(e[1], e[0]) % (2 * math.pi)
        k = int(angle / width) % BINS
        fraction = angle / width - int(angle / width)
        strength = max(0.0, max_range - math.hypot(*e)) / max_range
        bins[k] = max(bins[k], strength)
        bins[(k + 1) % BINS] = max(bins[(k + 1) % BINS], fraction * strength)
        bins[(k - 1) % BINS] = max(bins[(k - 1) % BINS], (1 - fraction) * strength)
    return bins


def readings(offset: Any, height: Any, frame: Any, kinds: list[slice], max_range: float) -> Any:
    x, y = ego(offset, height, frame)
    bins = np.zeros((len(offset), len(kinds) + 1, BINS))
    lidar(xp, x, y, xp.sqrt(x * x + y * y), max_range, first_bins(xp, kinds, *x.shape), bins)
    return bins[:, :-1].reshape(len(offset), -1)


def rotation(axis: Any, angle: float) -> Any:
    axis = np.asarray(axis) / np.linalg.norm(axis)
    k = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    return np.eye(3) + math.sin(angle) * k + (1 - math.cos(angle)) * k @ k


coordinate = st.floats(-4, 4, allow_subnormal=False)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(coordinate, coordinate), min_size=1, max_size=5),
    st.floats(-math.pi, math.pi),
    st.floats(0, 0.3),
    st.sampled_from([3.0, 6.0]),
)
def test_lidar_is_what_its_definition_says(objects: Any, heading: float, tilt: float, max_range: float) -> None:
    frame = rotation([0, 0, 1], heading) @ rotation([1, 0.5, 0], tilt)
    offset = np.asarray(objects, float)[None]
    ours = readings(offset, np.array([0.1]), frame[None], [slice(0, len(objects))], max_range)
    np.testing.assert_allclose(ours[0], by_the_book(objects, 0.1, frame, max_range), rtol=0, atol=1e-12)


def test_kinds_and_worlds_do_not_mix() -> None:
    rng = np.random.default_rng(0)
    offset = rng.uniform(-3, 3, (5, 7, 2))
    frame = np.stack([rotation([0, 0, 1], angle) for angle in rng.uniform(-3, 3, 5)])
    kinds = [slice(0, 1), slice(2, 5), slice(5, 6)]  # objects 1 and 6 are out of view
    ours = readings(offset, None, frame, kinds, 3.0)
    for world in range(5):
        expected = [by_the_book(offset[world, kind], 0.0, frame[world], 3.0) for kind in kinds]
        np.testing.assert_allclose(ours[world], np.concatenate(expected), rtol=0, atol=1e-12)


def test_a_target_at_the_centre_of_its_bin_lights_both_neighbours_at_half_strength() -> None:
    angle = 2.5 * 2 * math.pi / BINS
    offset = 1.5 * np.array([[[math.cos(angle), math.sin(angle)]]])
    bins = readings(offset, None, np.eye(3)[None], [slice(0, 1)], 3.0)[0]
    np.testing.assert_allclose(bins[1:4], [0.25, 0.5, 0.25], atol=1e-12)
    assert np.delete(bins, [1, 2, 3]).max() == 0.0


def test_a_target_just_below_the_x_axis_is_no_index_error() -> None:
    offset = np.array([[[1.0, -1e-300]], [[1.0, -0.0]], [[0.0, 0.0]]])
    bins = readings(offset, None, np.tile(np.eye(3), (3, 1, 1)), [slice(0, 1)], 3.0)
    np.testing.assert_allclose(bins[0], bins[1], atol=1e-12)
    np.testing.assert_allclose(bins[2, [0, 15]], 1.0, atol=1e-12)  # on the spot: angle 0, at the edge of two bins
