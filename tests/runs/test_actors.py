"""Policies from elsewhere, exported ones, callables and models of other libraries: they act, or it is told why not."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

import sbtrpo
from sbtrpo import cli
from sbtrpo.errors import UserError
from sbtrpo.runs.actors import DESCRIPTION, UnfitPolicy, open_actor
from sbtrpo.runs.evaluation import Evaluation, evaluate, subject
from sbtrpo.runs.evaluations import EARLIER, FOLDER, keep, kept
from sbtrpo.runs.export import SUFFIXES, export, to_onnx
from tests.envs.foreign.worlds import name_of
from tests.runs.trained import FORMATS, trained

TOY, GOAL, ROOMS = "ToyCorridor-v0", "SafetyPointGoal1-v0", name_of("rooms")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "toy", TOY)


def measured(result: Evaluation) -> Evaluation:
    """What was found, whoever found it."""
    return replace(result, policy="", checkpoint=None, deterministic=None)


class Model:
    """What Stable-Baselines3's models look like to who acts with them."""

    def __init__(self) -> None:
        self.asked: set[bool] = set()

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, Any]:
        self.asked.add(deterministic)
        noise = 0.0 if deterministic else torch.randn(len(observation), 2).numpy()
        return np.clip(observation[:, :2] * 0 + 0.3 + noise, -1, 1).astype(np.float32), None


# ---- exported files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("deterministic", [True, False])
def test_an_exported_policy_does_what_the_run_does(
    format: Literal["onnx", "torchscript"], deterministic: bool, run: Path, tmp_path: Path
) -> None:
    file = export(run, format, tmp_path / f"policy{SUFFIXES[format]}", deterministic)
    theirs = evaluate(file, 30, deterministic=deterministic)
    ours = evaluate(run, 30, deterministic=deterministic)
    assert (theirs.policy, theirs.checkpoint, theirs.deterministic) == (str(file), None, deterministic)
    np.testing.assert_allclose([theirs.reward, theirs.cost], [ours.reward, ours.cost], rtol=1e-5)
    assert theirs.safety_probability == ours.safety_probability
    if not deterministic:
        assert evaluate(file, 30, deterministic=True).reward != theirs.reward


@pytest.mark.parametrize("format", FORMATS)
def test_choices_are_counted_as_the_environment_counts_them(
    format: Literal["onnx", "torchscript"], tmp_path: Path
) -> None:
    run = trained(tmp_path / "run", ROOMS)
    file = export(run, format)
    with pytest.raises(ValueError, match=r"name the task .* with --task"):  # no file decides on what is imported
        evaluate(file)
    theirs = evaluate(file, 8, task=ROOMS)
    assert theirs.reward == evaluate(run, 8, deterministic=True).reward


def test_files_of_others_need_no_description(tmp_path: Path) -> None:
    class Net(torch.nn.Module):
        def forward(self, obs: torch.Tensor) -> torch.Tensor:
            return torch.tanh(obs[:, :2] * 0.5)

    path = tmp_path / "theirs.pt"
    with pytest.warns(DeprecationWarning, match=r"torch\.jit"):
        torch.jit.trace(Net(), torch.zeros(2, 2)).save(str(path))
    found = evaluate(path, 10, task=TOY)
    assert found.deterministic is None
    assert measured(found) == measured(evaluate(Net(), 10, task=TOY))


# ---- callables -------------------------------------------------------------------------------------------------------


def test_a_function_of_a_module_or_file_is_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = "import numpy as np\n\ndef right(obs):\n    return np.tile([1.0, 0.0], (len(obs), 1))\n"
    (tmp_path / "my_policies.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("my_policies:right", f"{tmp_path / 'my_policies.py'}:right"):
        assert cli.main(["evaluate", name, "--task", TOY, "--episodes", "6", "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["policy"], found["task"], found["deterministic"], found["seed"]) == (name, TOY, None, 7)
    assert found["reward"] == evaluate(lambda obs: np.tile([1.0, 0.0], (len(obs), 1)), 6, task=TOY).reward
    assert cli.main(["evaluate", "my_policies:right", "--task", TOY, "--episodes", "6"]) == 0
    assert [file.parent for file, _ in kept(tmp_path)] == [tmp_path / FOLDER]


def test_a_model_with_predict_acts_by_its_mean_or_samples() -> None:
    model = Model()
    mean, sampled, again = (evaluate(model, 20, deterministic=d, task=TOY) for d in (True, False, False))
    assert model.asked == {True, False}
    assert (mean.deterministic, sampled.deterministic) == (True, False)
    assert sampled == again  # torch's own generator is seeded
    assert mean.reward != sampled.reward
    assert measured(evaluate(model.predict, 20, task=TOY)).reward == sampled.reward  # by default as they do


def test_actions_beyond_the_bounds_are_brought_into_them() -> None:
    far, full = (evaluate(lambda obs, x=x: np.full((len(obs), 2), x), 5, task=TOY) for x in (50.0, 1.0))
    assert measured(far) == measured(full)


# ---- what cannot be --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (Model, "is a class; name an object of it"),
        (3.0, "is a float, which does not map observations to actions"),
        (lambda obs: np.zeros((len(obs), 3)), r"gives actions of shape \(5, 3\); for 5 worlds .* \(5, 2\)"),
        (lambda obs: None, "gives actions of shape"),
        (lambda obs: obs["place"], r"fails on observations of shape \(5, 2\): IndexError"),
    ],
)
def test_what_cannot_act_is_told_in_a_sentence(policy: Any, sentence: str) -> None:
    with pytest.raises(UnfitPolicy, match=sentence):
        evaluate(policy, 5, task=TOY)


def test_what_a_policy_raises_comes_with_its_traceback() -> None:
    def policy(obs: Any) -> Any:
        raise KeyError("weights")

    with pytest.raises(UnfitPolicy) as failure:
        evaluate(policy, 5, task=TOY)
    assert 'raise KeyError("weights")' in failure.value.__notes__[0]
    assert "sbtrpo/runs/actors.py" not in failure.value.__notes__[0]


def test_choices_that_there_are_not_are_refused() -> None:
    with pytest.raises(UnfitPolicy, match="outside of Discrete"):
        evaluate(lambda obs: np.zeros(len(obs)), 2, task=ROOMS)  # they count from 1


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    torch.save({"weights": torch.zeros(2)}, tmp_path / "checkpoint.pt")
    (tmp_path / "policy.onnx").write_bytes(b"no graph")
    with pytest.raises(UnfitPolicy, match=r"no TorchScript file; .* my_module:policy"):
        evaluate(tmp_path / "checkpoint.pt", task=TOY)
    with pytest.raises(UnfitPolicy, match="cannot be read as ONNX"):
        evaluate(tmp_path / "policy.onnx", task=TOY)
    for name in ("missing.pt", "missing.onnx"):
        with pytest.raises(
            UserError, match=f"there is no .*{name}; name a run's folder, an exported policy, or module"
        ):
            evaluate(tmp_path / name, task=TOY)


@pytest.mark.parametrize(
    ("inputs", "shape", "sentence"),
    [
        ([], [None, 2], "has nothing as input; a policy has one, and another `noise` if it samples"),
        (["obs", "memory"], [None, 2], "has obs, memory as input; a policy has one"),
        (["obs"], [], "fails on observations of shape"),
    ],
)
def test_an_onnx_file_takes_observations_and_nothing_else(
    inputs: list[str], shape: list[int | None], sentence: str, tmp_path: Path
) -> None:
    onnx = pytest.importorskip("onnx")
    value, number = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    zeros = onnx.helper.make_tensor("zeros", number, [1, 2], [0.0, 0.0])
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Constant", [], ["actions"], value=zeros)], "policy",
        [value(name, number, shape) for name in inputs], [value("actions", number, [1, 2])],
    )  # fmt: skip
    model = onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)])
    (tmp_path / "policy.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(UnfitPolicy, match=sentence):
        evaluate(tmp_path / "policy.onnx", 2, task=TOY)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
@pytest.mark.parametrize("about", ["[]", "{", "3", '{"observation_size": "many"}', '{"observation_size": [2]}'])
def test_a_damaged_description_is_told(about: str, tmp_path: Path) -> None:
    module = torch.jit.trace(torch.nn.Linear(2, 2), torch.zeros(1, 2))
    torch.jit.save(module, str(tmp_path / "policy.pt"), _extra_files={DESCRIPTION: about})
    with pytest.raises(UnfitPolicy, match=r"policy.pt says what cannot be of itself; export it again"):
        evaluate(tmp_path / "policy.pt", 2, task=TOY)


def test_a_policy_for_other_observations_is_refused(run: Path, tmp_path: Path) -> None:
    for format in FORMATS:
        file = export(run, format, tmp_path / f"policy{SUFFIXES[format]}")
        with pytest.raises(UnfitPolicy, match=r"takes observations of 2 numbers, and SafetyPointGoal1-v0 gives \d+"):
            evaluate(file, 2, task=GOAL)
    with pytest.raises(UserError, match="trained with 2 observations and 2 actions, and SafetyPointGoal1-v0 has"):
        evaluate(run, 2, task=GOAL)


def test_what_belongs_to_runs_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="checkpoint of a run"):
        evaluate(Model(), task=TOY, which="best")
    with pytest.raises(ValueError, match="name the task"):
        evaluate(Model())
    with pytest.raises(FileNotFoundError, match="not the folder of a run"):
        evaluate(tmp_path)


def test_a_file_imports_nothing_that_it_names(run: Path, tmp_path: Path) -> None:
    (tmp_path / "policy.onnx").write_bytes(to_onnx(sbtrpo.load_policy(run), True, {"task": "antigravity:Fly-v0"}))
    actor = open_actor(tmp_path / "policy.onnx")
    assert actor is not None
    assert actor.task is None
    assert "antigravity" not in sys.modules


# ---- runs on other tasks, and what is kept ---------------------------------------------------------------------------


def test_a_run_is_evaluated_on_another_task_and_with_other_arguments(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", name_of("walk"))
    other = evaluate(run, 4, task=name_of("six walk"))
    assert measured(replace(other, task="")) == measured(replace(evaluate(run, 4), task=""))
    assert subject(run, env_kwargs=["six=true"]).config.task == f"{name_of('walk')}?six=true"
    for policy, kwargs in ((run, {"six": True}), (lambda obs: np.zeros((len(obs), 1)), ["six=true"])):
        found = evaluate(policy, 4, task=name_of("walk"), env_kwargs=kwargs)
        assert found.task == f"{name_of('walk')}?six=true"


def test_names_of_evaluations_are_whole_in_a_narrow_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "60")
    task = "my_package:MyEnv-v0?difficulty=2&map=maze"
    keep(replace(evaluate(Model(), 2, task=TOY), task=task), subject(Model(), task=TOY))
    assert cli.main(["evaluate", "my_module:policy", "--kept"]) == 0
    first = (line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip())
    assert task in "".join(first)


@pytest.mark.parametrize("content", ["{}", "[]", '{"safety_probability_interval": 3}', "3"])
def test_what_is_no_evaluation_is_told(content: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "x.json").write_text(content)
    assert cli.main(["evaluate", str(tmp_path), "--kept"]) == 2
    assert "x.json is no evaluation" in capsys.readouterr().err


def test_a_mistyped_run_has_no_evaluations(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", "rnu", "--kept"]) == 2
    assert capsys.readouterr().err.startswith("sbtrpo: there is no rnu; name a run's folder")


def test_evaluations_are_kept_side_by_side(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = {"task": TOY, "episodes": 5, "deterministic": False, "reward": 1.0, "reward_std": 0.5, "cost": 2.0,
           "cost_std": 0.25, "safety_probability": 0.8, "safety_probability_interval": [0.4, 0.9]}  # fmt: skip
    (run / EARLIER).write_text(json.dumps(old))
    command = ["evaluate", str(run), "--episodes", "6"]
    settings: list[list[str]] = [[], ["--seed", "8"], ["--deterministic"], ["--which", "2"], []]
    for more in settings:
        assert cli.main([*command, *more]) == 0
    out = capsys.readouterr().out
    assert "standard deviation" in out
    assert "Wilson's 95 % interval" in out
    (_, first), *others = kept(run)
    assert first == old
    assert len(others) == 4  # the last one says what the first one says
    found = {(entry["checkpoint"], entry["seed"], entry["deterministic"]) for _, entry in others}
    assert found == {(3, 7, False), (3, 8, False), (3, 7, True), (2, 7, False)}
    assert all(entry["episodes"] == 6 and entry["policy"] == "sb-trpo, seed 0" for _, entry in others)
    assert cli.main([*command, "--kept"]) == 0
    listed = capsys.readouterr().out
    assert "standard deviation" in listed
    assert listed.count(TOY[:3]) == 5
