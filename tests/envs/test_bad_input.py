"""Bad input gets one sentence that says what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sbtrpo
from sbtrpo.envs import layout, registry
from sbtrpo.envs.foreign.check import check_environment
from sbtrpo.envs.layout import LayoutError
from sbtrpo.envs.spec import NavigationSpec, goal, hazards

TASK = "SafetyPointGoal2-v0"


@pytest.fixture
def pool() -> sbtrpo.Pool:
    made = sbtrpo.make_pool(TASK, num_worlds=3)
    made.reset()
    return made


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"task": "SafetyPointGaol2-v0"}, ValueError, "'SafetyPointGaol2-v0'; did you mean SafetyPointGoal2-v0"),
        ({"task": "CartPole-v1"}, ValueError, "unknown task 'CartPole-v1'"),
        ({"num_worlds": 0}, ValueError, "num_worlds must be at least 1, got 0"),
        ({"num_worlds": -3}, ValueError, "num_worlds must be at least 1, got -3"),
        ({"num_worlds": 2.5}, TypeError, "num_worlds must be a whole number, got 2.5"),
        ({"threads": -1}, ValueError, "threads must be at least 0, got -1"),
        ({"seed": -1}, ValueError, "seed must be at least 0, got -1"),
        ({"engine": "warp"}, ValueError, "engine must be one of auto, cpu, gpu, gpu-on-cpu, got 'warp'"),
        ({"layout_rng": "numpy"}, ValueError, "layout_rng must be 'fast' or 'original', got 'numpy'"),
        ({"layout_rng": "original", "seed": 2**32 - 1}, ValueError, "seed must be at most 4294967294 with layout_rng"),
        ({"layout_rng": "original", "seed": 2**70}, ValueError, "use a smaller seed or layout_rng='fast'"),
        ({"task": "SafetySwimmerVelocity-v1", "layout_rng": "original", "seed": 2**63}, ValueError, "seed must be at"),
    ],
)  # fmt: skip
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], sentence: str) -> None:
    with pytest.raises(error) as caught:
        sbtrpo.make_pool(**{"task": TASK, "num_worlds": 2, **arguments})
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("action", "error", "sentence"),
    [
        (np.zeros((2, 2)), ValueError, "action must have shape (3, 2), (worlds, action size), got (2, 2)"),
        (np.zeros((3, 3)), ValueError, "got (3, 3)"),
        (np.zeros(2), ValueError, "got (2,)"),
        (np.zeros((3, 2), np.int64), TypeError, "action must be a float32 or float64 ndarray, got int64; convert it"),
        (np.zeros((3, 2), object), TypeError, "got object"),
        (np.array([[0, 0], [0, np.nan], [0, 0]]), ValueError, "action of world 1 is not finite"),
        (np.array([[0, 0], [0, 0], [-np.inf, 0]]), ValueError, "action of world 2 is not finite"),
    ],
)
def test_wrong_actions(pool: sbtrpo.Pool, action: Any, error: type[Exception], sentence: str) -> None:
    before = pool.last_obs
    with pytest.raises(error) as caught:
        pool.step(action)
    assert sentence in str(caught.value)
    # A refused action changes nothing.
    np.testing.assert_array_equal(pool.last_obs, before)
    assert pool.step(np.zeros((3, 2)))[0].shape == (3, 60)


def test_a_torch_action_is_refused_with_a_hint(pool: sbtrpo.Pool) -> None:
    import torch

    with pytest.raises(TypeError, match=r"float64 ndarray, got torch\.float32; convert it"):
        pool.step(torch.zeros(3, 2))


def test_actions_beyond_the_bounds_are_clipped() -> None:
    wild, tame = (sbtrpo.make_pool(TASK, num_worlds=2, seed=1) for _ in range(2))
    wild.reset()
    tame.reset()
    expected = [tame.step(np.ones((2, 2)))[0] for _ in range(3)]
    largest = np.finfo(np.float32).max  # a sum of two of these is infinite
    for action, obs in zip(
        ([[40.0, 40.0]] * 2, np.full((2, 2), 1e300), np.full((2, 2), largest)), expected, strict=True
    ):
        np.testing.assert_array_equal(wild.step(action)[0], obs)


def test_step_before_reset() -> None:
    fresh = sbtrpo.make_pool(TASK, num_worlds=2)
    with pytest.raises(RuntimeError, match=r"step was called before reset; call pool.reset\(\) first"):
        fresh.step(np.zeros((2, 2)))
    with pytest.raises(RuntimeError, match="before its first reset"):
        fresh.state_dict()
    with pytest.raises(RuntimeError, match="before its first reset"):
        _ = fresh.last_obs


def test_a_layout_without_room_says_which_object_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    crowded = NavigationSpec(
        "Crowded-v0", "point", "goal", (goal(0.3, 0.305), hazards(6, keepout=0.4)), extent=1.0
    )  # fmt: skip
    monkeypatch.setitem(registry._TASKS, crowded.id, crowded)
    pool = sbtrpo.make_pool("Crowded-v0", num_worlds=2)
    with pytest.raises(LayoutError, match=r"Crowded-v0: no room for hazards \d+ \(keepout 0.4 m\).*use fewer objects"):
        pool.reset()


def crowd(count: int) -> dict[str, Any]:
    objects = [{"kind": "goal"}, {"kind": "hazards", "count": count}]
    return {"id": "Crowd-v0", "robot": "point", "objective": "goal", "objects": objects}


def test_keepouts_beyond_the_room_are_refused_at_once() -> None:
    with pytest.raises(LayoutError, match=r"Crowd-v0: the keepouts .* 402 things, take 2\.6 times the room"):
        sbtrpo.make_pool(crowd(400), num_worlds=20)


def test_a_jammed_layout_is_refused_after_few_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one world, however many there are: a bound on work, since seconds depend on the machine."""
    tried: list[int] = []
    plain = layout._try_layouts

    def counted(things: Any, streams: Any, rows: Any) -> Any:
        tried.append(len(rows))
        return plain(things, streams, rows)

    monkeypatch.setattr(layout, "_try_layouts", counted)
    pool = sbtrpo.make_pool(crowd(100), num_worlds=20)
    with pytest.raises(LayoutError, match=r"no room for hazards \d+ .* after 980 layouts of 100 attempts; use fewer"):
        pool.reset()
    assert sum(tried) < 1100


@pytest.mark.parametrize("count", [100, 400])
def test_check_tells_of_a_layout_without_room_in_a_sentence(count: int, tmp_path: Path) -> None:
    objects = f'[[objects]]\nkind = "goal"\n[[objects]]\nkind = "hazards"\ncount = {count}\n'
    file = tmp_path / "crowd.toml"
    file.write_text(f'id = "Crowd-v0"\nrobot = "point"\nobjective = "goal"\n{objects}', encoding="utf-8")
    report = check_environment(str(file), seconds=1.0, isolated=False)
    assert not report.ok
    (error,) = (finding.message for finding in report.findings)
    assert error.startswith("Crowd-v0: ")
    assert error.endswith("use fewer objects, smaller keepouts or a larger extent")


def test_a_task_id_is_registered_once() -> None:
    with pytest.raises(ValueError, match="already registered; choose another id"):
        sbtrpo.envs.register(registry.get_spec(TASK))


def test_a_task_may_be_named_as_gymnasium_does() -> None:
    assert registry.get_spec(f"sbtrpo:{TASK}") is registry.get_spec(TASK)


def test_an_environment_of_ones_own_is_no_task_but_can_be_tried() -> None:
    with pytest.raises(ValueError, match="`sbtrpo check my_package:MyEnv-v0` tries an environment of your own"):
        registry.get_spec("my_package:MyEnv-v0")
