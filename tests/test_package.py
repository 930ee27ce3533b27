"""What `import sbtrpo` offers, and what it does not wait for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import sbtrpo
import sbtrpo.envs

HEAVY = {"matplotlib", "mujoco", "pyarrow", "scipy", "tensorboard", "torch"}


def fresh(code: str) -> str:
    """What a new interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize(
    "code",
    [
        "import sbtrpo",
        "import sbtrpo; sbtrpo.task_ids()",
        "from sbtrpo.cli.app import main; main(['tasks'])",
        "from sbtrpo.cli.app import main; main(['tasks', 'SafetyCarGoal1-v0'])",
    ],
)
def test_who_only_looks_waits_neither_for_the_engine_nor_for_the_learner(code: str) -> None:
    loaded = fresh(f"{code}\nimport sys; print('\\nmodules', *sys.modules)").splitlines()[-1].split()
    assert "sbtrpo" in loaded
    assert not HEAVY & set(loaded)


def test_tasks_are_registered_with_gymnasium_whoever_is_imported_first() -> None:
    for first, second in (("sbtrpo", "gymnasium"), ("gymnasium", "sbtrpo")):
        code = f"import {first}, {second}; print(gymnasium.make('SafetyPointGoal2-v0').observation_space.shape)"
        assert fresh(code) == "(60,)\n"
    assert fresh("import gymnasium as g; print(g.make('sbtrpo:SafetyCarGoal2-v0').spec.id)") == "SafetyCarGoal2-v0\n"


@pytest.mark.parametrize("package", [sbtrpo, sbtrpo.envs])
def test_public_names_are_listed_and_there(package: object) -> None:
    names = package.__all__  # type: ignore[attr-defined]
    assert set(names) <= set(dir(package))
    for name in names:
        assert getattr(package, name) is not None


@pytest.mark.parametrize("package", [sbtrpo, sbtrpo.envs])
def test_names_that_do_not_exist_are_told(package: object) -> None:
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        package.trian  # type: ignore[attr-defined]  # noqa: B018
