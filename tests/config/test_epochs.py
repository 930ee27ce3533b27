"""How long epochs are, and how many a run has."""

from __future__ import annotations

import copy
import pickle
from decimal import Decimal
from itertools import accumulate

import pytest

from sbtrpo import TrainConfig
from sbtrpo.config.run import MOST_STEPS, RunSettings


def grown(growth: float, units: int, **settings: int) -> TrainConfig:
    """With epochs of 100 steps at first, and room for so many of these."""
    return TrainConfig(num_envs=4, steps_per_epoch=100, total_steps=100 * units, epoch_growth=growth, **settings)


def by_hand(growth: str, units: int) -> list[int]:
    """The lengths of all epochs that end in time, by the definition."""
    lengths: list[int] = []
    while sum(lengths) + (length := max(1, int(Decimal(growth) * sum(lengths)))) <= units:
        lengths.append(length)
    return lengths


def lengths(config: RunSettings) -> list[int]:
    return [config.steps_in(epoch) // config.steps_per_epoch for epoch in range(config.epochs)]


def test_epochs_are_alike_unless_they_are_to_grow() -> None:
    config = TrainConfig(num_envs=1, steps_per_epoch=1, total_steps=MOST_STEPS)
    assert config.epochs == config.steps_after(MOST_STEPS) == MOST_STEPS
    assert (config.steps_in(0), config.steps_in(10**9)) == (1, 1)


def test_an_epoch_has_its_share_of_the_steps_before_it() -> None:
    assert lengths(grown(0.5, 20)) == [1, 1, 1, 1, 2, 3, 4, 6]
    assert lengths(grown(1, 1000)) == [1, 1, 2, 4, 8, 16, 32, 64, 128, 256]
    config = TrainConfig(epoch_growth=0.02)
    assert lengths(config)[:150] == [1] * 100 + [2] * 25 + [3] * 17 + [4] * 8
    assert (config.epochs, config.steps_after(config.epochs)) == (228, 19_960_000)


@pytest.mark.parametrize("growth", ["0.003", "0.02", "0.07", "0.1", "0.29", "0.3333333333333333", "0.999", "1.0"])
@pytest.mark.parametrize("units", [1, 2, 7, 100, 1234])
def test_lengths_are_those_of_the_definition(growth: str, units: int) -> None:
    config, expected = grown(float(growth), units), by_hand(growth, units)
    assert lengths(config) == expected
    assert [config.steps_after(k) for k in range(config.epochs + 1)] == [
        100 * end for end in accumulate(expected, initial=0)
    ]


def test_a_share_is_the_number_that_was_written() -> None:
    """As a product of floating-point numbers, 0.0048 of 625 is less than 3."""
    assert int(0.0048 * 625) == 2
    config = RunSettings(steps_per_epoch=1, total_steps=1000, epoch_growth=0.0048)
    assert {config.steps_after(k): config.steps_in(k) for k in range(config.epochs)}[625] == 3


def test_lengths_do_not_depend_on_that_of_the_run() -> None:
    short, long = grown(0.1, 50), grown(0.1, 500)
    assert lengths(long)[: short.epochs] == lengths(short)
    assert short.steps_after(long.epochs) == long.steps_after(long.epochs)


@pytest.mark.parametrize("growth", [1e-300, 1e-12, 0.02, 1.0])
def test_long_runs_are_counted_at_once(growth: float) -> None:
    config = RunSettings(steps_per_epoch=1, total_steps=MOST_STEPS, epoch_growth=growth)
    end = config.steps_after(config.epochs)
    assert end <= MOST_STEPS < end + config.steps_in(config.epochs)
    assert config.share_after(config.epochs) == 1.0


def test_nobody_asks_for_epochs_beyond_all_runs_in_vain() -> None:
    with pytest.raises(ValueError, match=r"no run has 1,000,000,000 epochs where epoch_growth is 0\.5"):
        RunSettings(epoch_growth=0.5).steps_after(10**9)


def test_the_share_of_a_run_that_is_over_goes_by_steps() -> None:
    config = grown(1, 8)
    assert [config.share_after(k) for k in range(config.epochs + 1)] == [0, 1 / 8, 1 / 4, 1 / 2, 1]
    alike = TrainConfig(steps_per_epoch=140, num_envs=7, total_steps=140 * 49 + 3)
    assert [alike.share_after(k) for k in range(49)] == [k / 49 for k in range(49)]  # to the last bit


def test_steps_that_are_not_trained_are_told() -> None:
    assert grown(0.5, 19).notes() == []
    assert grown(0.5, 20).notes() == ["of total_steps, 2,000, the run takes 1,900: 8 whole epochs of 100 and more"]
    assert grown(0.5, 1).notes() == []


def test_settings_with_growth_are_compared_copied_and_replaced_like_others() -> None:
    config = grown(0.5, 20)
    assert config.epochs == 8
    assert config == grown(0.5, 20) != grown(0.25, 20)
    assert pickle.loads(pickle.dumps(config)) == copy.deepcopy(config) == config
    assert (config.replace(total_steps=100_000).epochs, config.replace(epoch_growth=None).epochs) == (17, 20)
    assert TrainConfig(**config.settings()) == config


def test_folders_of_runs_whose_epochs_are_alike_keep_their_names() -> None:
    assert TrainConfig(epoch_growth=0).digest() == TrainConfig().digest() == "c1727b58"
    assert TrainConfig(epoch_growth=0.02).digest() != TrainConfig().digest()
