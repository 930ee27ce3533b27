"""Keyword arguments of an environment: part of its name, whichever way they are given."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbtrpo.benchmark.plan import Plan, run_path
from sbtrpo.config import TrainConfig
from sbtrpo.config.tasks import env_kwargs, is_foreign, is_task_file, with_env_kwargs
from sbtrpo.envs.foreign.pool import make_env_pool
from tests.envs.foreign.worlds import name_of

WALK = name_of("walk")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True), VALUES, max_size=4))
def test_a_name_gives_back_what_was_put_into_it(kwargs: dict[str, Any]) -> None:
    task = with_env_kwargs("package:Env-v0", kwargs)
    name, found = env_kwargs(task)
    assert (name, found) == ("package:Env-v0", kwargs)
    assert [type(value) for value in found.values()] == [type(kwargs[key]) for key in found]
    assert is_foreign(task)
    assert not is_task_file(task)
    assert with_env_kwargs(task, {}) == task


def test_words_mean_what_they_look_like() -> None:
    words = ["a=2", "b=2.5", "c=true", "d=False", "e=None", "f=maze", "g=[1, 2]", "h=a=b", "i="]
    _, kwargs = env_kwargs(with_env_kwargs("package:Env-v0", words))
    assert kwargs == {
        "a": 2, "b": 2.5, "c": True, "d": False, "e": None, "f": "maze", "g": [1, 2], "h": "a=b", "i": "",
    }  # fmt: skip


@pytest.mark.parametrize("wrong", ["difficulty", "=2", "two words=2", "2x=1"])
def test_what_is_no_argument_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match="name=value"):
        TrainConfig(task=WALK, env_kwargs=[wrong])
    with pytest.raises(ValueError, match="name=value"):
        Plan.from_settings({"tasks": [WALK], "env_kwargs": [wrong]})


def test_tasks_of_this_package_take_none() -> None:
    with pytest.raises(ValueError, match="environment of your own"):
        TrainConfig(env_kwargs={"difficulty": 2})


def test_they_tell_runs_apart_and_their_order_does_not() -> None:
    easy, hard = (TrainConfig(task=WALK, env_kwargs={"difficulty": k}) for k in (1, 2))
    assert easy.digest() != hard.digest()
    assert run_path("runs", easy) != run_path("runs", hard)
    assert not set(":?&%") & set(str(run_path("runs", TrainConfig(task=WALK, env_kwargs=["map=a&b?", "c=1"]))))
    one, other = (TrainConfig(task=WALK, env_kwargs=words) for words in (["a=1", "b=2"], ["b=2", "a=1"]))
    assert one == other
    assert one.digest() == other.digest()
    assert TrainConfig(task=f"{WALK}?b=2&a=1") == one


def test_they_are_axes_of_a_plan() -> None:
    both = {"difficulty": [1, 2], "six": True}
    runs = Plan.from_settings({"tasks": [WALK], "env_kwargs": both, "num_seeds": 2}).runs()
    names = [f"{WALK}?difficulty={k}&six=true" for k in (1, 1, 2, 2)]
    assert [run.task for run in runs] == names
    on_top = Plan.from_settings({"tasks": [WALK], "env_kwargs": both}).replaced({"env_kwargs": ("difficulty=3",)})
    assert [run.task for run in on_top.runs()] == [f"{WALK}?difficulty=3"]


def test_they_reach_the_environment() -> None:
    with pytest.raises(ValueError, match="ZeroDivisionError: as promised"):
        make_env_pool(TrainConfig(task=WALK, env_kwargs={"trouble": "always"}).task, 1, threads=1)


def test_a_wrong_argument_is_told_by_its_name() -> None:
    with pytest.raises(ValueError, match="colour"):
        make_env_pool(f"{WALK}?colour=2", 1, threads=1)
