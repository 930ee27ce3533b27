from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sbtrpo
from sbtrpo.nets.images import Image
from sbtrpo.nets.network import PUBLISHED, Design
from sbtrpo.nets.policy import Policy
from sbtrpo.runs import export as exporting
from sbtrpo.runs.export import DESCRIPTION, export, to_onnx, to_torchscript

OBSERVATIONS = 1000
SIZE, HIDDEN = 7, (16, 8)
Act = Callable[..., Any]


def policy(discrete: bool = False, spread: float = 0.3, design: Design = PUBLISHED) -> Policy:
    """With statistics, bounds and standard deviations that all matter."""
    rng = np.random.default_rng(0)
    size = SIZE if design.image is None else design.image.size
    low, high = (None, None) if discrete else (np.array([-2.0, 0.0, -0.5]), np.array([-1.0, 3.0, 0.5]))
    made = Policy(
        size, 3, HIDDEN, torch.Generator().manual_seed(0), discrete=discrete, low=low, high=high, design=design
    )
    made.normaliser.mean, made.normaliser.var = rng.normal(5, 3, size), rng.uniform(0.1, 9, size)
    made.normaliser.var[0] = 1e-9  # a sensor that hardly varies
    for tensor in made.params:
        tensor.add_(0.3 * torch.randn(tensor.shape, generator=torch.Generator().manual_seed(1)))
    made.log_std.fill_(np.log(spread))
    return made


def observations(of: Policy) -> np.ndarray:
    rng = np.random.default_rng(1)
    scale = np.sqrt(of.normaliser.var)
    return of.normaliser.mean + 2 * scale * rng.standard_normal((OBSERVATIONS, len(scale)))


def torchscript(content: bytes, folder: Path) -> Act:
    (folder / "policy.pt").write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = torch.jit.load(str(folder / "policy.pt"))
    return lambda *inputs: loaded(*map(torch.as_tensor, inputs)).numpy()


def onnx(content: bytes, folder: Path) -> Act:
    """By onnxruntime where it is installed, otherwise by ONNX's own reference."""
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError:
        session = importlib.import_module("onnx.reference").ReferenceEvaluator(content)
        names = session.input_names
    else:
        session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
        names = [part.name for part in session.get_inputs()]
    return lambda *inputs: session.run(None, dict(zip(names, inputs, strict=True)))[0]


WRITERS: dict[str, tuple[Any, Any]] = {"torchscript": (to_torchscript, torchscript), "onnx": (to_onnx, onnx)}


def deployed(kind: str, of: Policy, deterministic: bool, folder: Path) -> Act:
    if kind == "onnx":
        pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
    write, read = WRITERS[kind]
    act: Act = read(write(of, deterministic, {"task": "test"}), folder)
    return act


@pytest.mark.parametrize("kind", WRITERS)
def test_actions_are_the_original_ones_brought_into_bounds(kind: str, tmp_path: Path) -> None:
    original = policy()
    act, obs = deployed(kind, original, True, tmp_path), observations(original)
    expected = np.clip(original.act(obs, deterministic=True), original.low, original.high)
    actions = act(obs)
    np.testing.assert_allclose(actions, expected, rtol=0, atol=2e-6)
    assert (actions >= original.low).all()
    assert (actions <= original.high).all()
    inside = (expected > original.low) & (expected < original.high)
    assert 0.1 < inside.mean() < 1  # both the map and the bounds were tried


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize(
    "design",
    [
        Design("relu"), Design("elu"), Design("relu", image=Image((16, 9, 2), 0, 255)),
        Design("elu", image=Image((2, 9, 16), 0, 255)), Design(image=Image((8, 12), 0, 255)),
    ],
)  # fmt: skip
def test_networks_of_other_designs_act_as_the_original(
    kind: str, discrete: bool, design: Design, tmp_path: Path
) -> None:
    original = policy(discrete, design=design)
    for tensor in original.params[1:]:
        tensor.mul_(0.3)
    act, obs = deployed(kind, original, True, tmp_path), observations(original)
    actions, expected = act(obs), original.act(obs, deterministic=True)
    assert (np.abs(actions - expected) < 1e-4).mean() > 0.999  # two logits may be a rounding apart
    assert len(np.unique(actions)) > 1


@pytest.mark.parametrize("kind", WRITERS)
def test_a_choice_is_the_original_one(kind: str, tmp_path: Path) -> None:
    original = policy(discrete=True)
    act, obs = deployed(kind, original, True, tmp_path), observations(original)
    np.testing.assert_array_equal(act(obs), original.act(obs, deterministic=True))


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("discrete", [False, True])
def test_the_same_noise_gives_the_original_samples(kind: str, discrete: bool, tmp_path: Path) -> None:
    original = policy(discrete)
    act, obs = deployed(kind, original, False, tmp_path), observations(original)
    noise = original.head.noise(torch, (len(obs),), torch.Generator().manual_seed(3)).numpy()
    expected = original.act(obs, seed=3)
    if not discrete:
        expected = np.clip(expected, original.low, original.high)
    np.testing.assert_allclose(act(obs, noise), expected, rtol=0, atol=3e-6)
    np.testing.assert_allclose(act(obs, 0 * noise), deployed(kind, original, True, tmp_path)(obs), atol=1e-6)


@pytest.mark.parametrize("kind", WRITERS)
def test_samples_spread_as_the_policy_says(kind: str, tmp_path: Path) -> None:
    original = policy(spread=0.05)
    act = deployed(kind, original, False, tmp_path)
    obs = np.repeat(original.normaliser.mean[None], 20_000, axis=0)
    noise = np.random.default_rng(0).standard_normal((len(obs), 3)).astype(np.float32)
    mean = np.clip(original.act(obs[0], deterministic=True), original.low, original.high)
    inside = (mean > original.low + 0.2) & (mean < original.high - 0.2)
    assert inside.any()
    spread = act(obs, noise).std(axis=0)[inside]
    np.testing.assert_allclose(spread, 0.05 * (original.high - original.low)[inside] / 2, rtol=0.03)


def test_torchscript_takes_both_precisions_and_any_batch(tmp_path: Path) -> None:
    original = policy()
    original.normaliser.var[0] = 1.0  # otherwise single precision is not enough
    act, obs = deployed("torchscript", original, True, tmp_path), observations(original)
    np.testing.assert_allclose(act(obs.astype(np.float32)), act(obs), atol=1e-4)
    np.testing.assert_allclose(act(obs[:1]), act(obs)[:1], atol=1e-6)
    assert act(obs).dtype == np.float32


# ---- runs ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = sbtrpo.TrainConfig(task="ToyCorridor-v0", num_envs=4, steps_per_epoch=200, total_steps=400)
    return sbtrpo.train(config, out=tmp_path_factory.mktemp("run") / "toy", quiet=True)


@pytest.mark.parametrize("kind", WRITERS)
def test_a_runs_policy_is_exported_with_its_statistics(kind: str, run: Path, tmp_path: Path) -> None:
    if kind == "onnx":
        pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
    path = export(run, kind, tmp_path / "new" / "file")  # type: ignore[arg-type]
    act = WRITERS[kind][1](path.read_bytes(), tmp_path)
    original = sbtrpo.load_policy(run)
    obs = np.random.default_rng(0).uniform(-3, 3, (OBSERVATIONS, 2))
    np.testing.assert_allclose(act(obs), np.clip(original.act(obs, deterministic=True), -1, 1), rtol=0, atol=2e-6)


def test_the_file_stands_in_the_runs_folder_and_says_what_it_is(run: Path) -> None:
    path = export(run, "torchscript", deterministic=False)
    assert path == run / "policy.pt"
    extra = {DESCRIPTION: ""}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.load(str(path), _extra_files=extra)
    about = json.loads(extra[DESCRIPTION])
    assert about["task"] == "ToyCorridor-v0"
    assert about["noise"] == "Normal(0, 1)"
    assert json.loads(about["action_low"]) == [-1, -1]


def test_onnx_holds_the_same_description(run: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="the extra `onnx` is not installed")
    model = onnx.load(export(run, "onnx"))
    about = {entry.key: entry.value for entry in model.metadata_props}
    assert about["task"] == "ToyCorridor-v0"
    assert about["deterministic"] == "true"
    assert [part.name for part in model.graph.input] == ["observation"]


def test_a_missing_onnx_is_said_with_the_command_that_mends_it(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(exporting.importlib, "import_module", missing)  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match=r"pip install 'sbtrpo\[onnx\]'"):
        export(run, "onnx")


def test_an_unknown_format_is_refused(run: Path) -> None:
    with pytest.raises(ValueError, match="onnx or torchscript"):
        export(run, "keras")  # type: ignore[arg-type]
