"""The benchmarks run: tiny ones, on Warp's CPU device. Their figures mean something on a GPU alone."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import sbtrpo
from sbtrpo.algorithms.trust_region import TrustRegion
from sbtrpo.learning.rollout import Rollout
from sbtrpo.learning.trainer import Trainer
from sbtrpo.nets.network import flatten
from sbtrpo.nets.policy import Policy
from tests.algorithms.samples import make_batch, make_policy

FOLDER = Path(__file__).parents[2] / "benchmarks"
TASK = "SafetyHopperVelocity-v1"


def rows(script: str, *words: str) -> list[dict[str, Any]]:
    command = [sys.executable, str(FOLDER / script), "--task", TASK, "--json", *words]
    child = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in child.stdout.splitlines() if line.startswith("{")]


def test_pool_and_physics_on_the_cpu() -> None:
    (row,) = rows("engine.py", "--worlds", "2", "--seconds", "0")
    assert row["pool_steps_per_s"] > 0
    assert row["physics_steps_per_s"] > 0


def test_acting_in_both_forms() -> None:
    command = [sys.executable, str(FOLDER / "crossing.py"), "--json", "--repeats", "1", "--kinds", "acting"]
    child = subprocess.run(command, capture_output=True, text=True, check=True)
    *sizes, last = [json.loads(line) for line in child.stdout.splitlines()]
    assert {row["kind"] for row in (*sizes, last)} == {"acting"}
    assert all(min(row["numpy_us"], row["torch_us"]) > 0 for row in sizes)
    assert last["crossing"] is None or last["crossing"] in [row["size"] for row in sizes]


def test_a_crossing_needs_two_engines() -> None:
    with pytest.raises(subprocess.CalledProcessError) as caught:
        rows("engine.py", "--crossing")
    assert "add --engine gpu" in caught.value.stderr


@pytest.mark.slow
def test_pool_and_warp() -> None:
    tiny = ("--engine", "gpu-on-cpu", "--seconds", "0", "--warm-up", "0", "--slice", "2")
    (row,) = rows("engine.py", "--worlds", "4", *tiny)
    assert row["faults"] == 0
    assert min(row[name] for name in ("pool_steps_per_s", "physics_steps_per_s", "ratio", "ready_s")) > 0
    *sizes, last = rows("engine.py", "--crossing", "--sizes", "2", "4", *tiny)
    assert [row["worlds"] for row in sizes] == [2, 4]
    faster = [row["worlds"] for row in sizes if row["gpu_steps_per_s"] > row["cpu_steps_per_s"]]
    assert last["crossing"] == (faster[0] if faster and faster[-1] == 4 else None)


@pytest.mark.slow
def test_training_and_warp() -> None:
    tiny = ("--engine", "gpu-on-cpu", "--worlds", "4", "--steps", "3", "--epochs", "1", "--profile")
    (row,) = rows("training.py", *tiny)
    assert row["physics_steps_per_s"] >= row["epoch_steps_per_s"] > 0
    shares = [value for name, value in row.items() if name.startswith("share_")]
    assert sum(shares) == pytest.approx(1, abs=0.01)


@pytest.mark.slow
def test_packs() -> None:
    tiny = ("--engine", "gpu-on-cpu", "--worlds", "4", "--steps", "3", "--epochs", "1", "--packs", "1", "2")
    one, two = rows("packs.py", *tiny)
    assert (one["learners"], two["learners"]) == (1, 2)
    assert min(two[f"{part}_ms_per_learner_{how}"] for part in ("update", "solve") for how in ("together", "apart")) > 0


@pytest.fixture
def estimators(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script, which finds the files beside it as it does when it is run."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("estimators")


def test_ways_from_a_gradient_to_a_step(estimators: Any) -> None:
    module = estimators
    policy = make_policy()
    batch = dataclasses.replace(make_batch(policy), worlds=10)
    region = TrustRegion(policy, batch, "sum_over_dims", module.SETTINGS.cg_damping)
    cost, (own, other) = region.gradients()[1], region.gradients_of_halves()[:, 1]
    steps = {name: way(region, cost) for name, way in module.WAYS.items()}

    def worth(step: torch.Tensor, gradient: torch.Tensor) -> float:
        """Change of cost by a step of length 1 in the metric."""
        return float(gradient @ step) / math.sqrt(float(step @ region.fisher(step[None])[0]))

    best = worth(steps["natural"], cost)
    weaker = [worth(steps[name], cost) for name in ("damping 0.3", "damping 3", "damping 30", "gradient")]
    assert best < weaker[0] < weaker[1] < weaker[2] < weaker[3] < 0
    step = 0.01 * steps["natural"]
    moved = region.evaluate(flatten(policy.params) + step).kl
    assert module.divergence(region, step) == pytest.approx(moved, rel=0.05)
    layer = steps["output layer"]
    size = policy.params[-2].numel() + policy.params[-1].numel()
    assert torch.count_nonzero(layer[:-size]) == 0
    inside = torch.zeros_like(layer)
    inside[-size:] = layer[-size:] + 0.1
    assert best < worth(layer, cost) < worth(inside, cost)
    assert worth(steps["half"], own) < worth(steps["natural"], own)
    kept = steps["half"] if other @ steps["half"] < 0 else torch.zeros_like(layer)
    assert torch.equal(steps["half, accepted"], kept)
    against = dataclasses.replace(batch, advantages=batch.advantages * (1 - 2 * (torch.arange(200) % 2)))
    disagreeing = TrustRegion(policy, against, "sum_over_dims", module.SETTINGS.cg_damping)
    step = module.WAYS["half, accepted"](disagreeing, disagreeing.gradients()[1])
    assert torch.count_nonzero(step) == 0


def test_rows_of_estimators_fit_older_tables(estimators: Any, tmp_path: Path) -> None:
    keep, table = estimators.keep, tmp_path / "t.csv"
    keep({"task": "a", "cost": 1}, table)
    keep({"task": "b", "cost": 2, "kl": 3}, table)
    assert table.read_text(encoding="utf-8") == "task,cost\na,1\nb,2\n"
    with pytest.raises(SystemExit, match="other columns"):
        keep({"task": "c", "kl": 3}, table)


def test_critics_of_actions_learn_what_leads_to_a_hit_from_earlier_policies(estimators: Any) -> None:
    """In the corridor it is to go up, near the strip more than far from it."""
    module, gamma, task = estimators, 0.9, "ToyCorridor-v0"
    torch.manual_seed(0)
    config = sbtrpo.TrainConfig(task=task, num_envs=64, steps_per_epoch=6400, total_steps=6400, threads=1)
    ours, theirs = (Trainer(config.replace(seed=seed)) for seed in (0, 1))
    with torch.no_grad():
        for one in (ours, theirs):
            one.policy.normaliser.update(np.random.default_rng(one.config.seed).normal(0.3, 2, (50, 2)))
            one.policy.normaliser.learns = False
            one.collector.start()
        rollout, earlier = ours.collector.collect(50), theirs.collector.collect(150)
        seen = module.seen_by(ours.policy, earlier, theirs.policy)

        def height(rollout: Rollout, policy: Policy) -> Any:
            mean, var = policy.normaliser.mean[1], policy.normaliser.var[1]
            return rollout.obs[..., 1].double() * var**0.5 + mean

        torch.testing.assert_close(height(seen, ours.policy), height(earlier, theirs.policy), rtol=0, atol=1e-5)
        high = (height(seen, ours.policy) > 0.5)[1:] & ~earlier.truncated[:-1]
        assert torch.equal(high, (earlier.cost[:-1] > 0) & ~earlier.truncated[:-1])  # where the strip is
    critics = module.FromThePast([seen], ours.policy, gamma, updates=400)
    with torch.no_grad():
        y, up = height(rollout, ours.policy), rollout.action[..., 1] - ours.policy.mean(rollout.obs)[..., 1]
        for pessimism in (0.0, 1.0):
            estimate = critics.advantage(rollout, pessimism)
            near, far = (torch.stack([estimate[at], up.double()[at]]) for at in ((y - 0.4).abs() < 0.1, y < -0.5))
            assert float(torch.corrcoef(near)[0, 1]) > 0.3
            assert float(near[0].std()) > 1.5 * float(far[0].std())


@pytest.mark.slow
def test_estimators(estimators: Any, tmp_path: Path) -> None:
    config = sbtrpo.TrainConfig(task=TASK, num_envs=4, steps_per_epoch=80, total_steps=80)
    run, table = sbtrpo.train(config, tmp_path / "run", quiet=True), tmp_path / "t.csv"
    script = [sys.executable, str(FOLDER / "estimators.py")]
    sizes = ["--worlds", "16", "--steps", "30", "--subsets", "2", "--repeats", "2", "--updates", "2"]
    command = [*script, str(run), *sizes, "--engine", "cpu", "--json", "--table", str(table)]
    child = subprocess.run(command, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in child.stdout.splitlines()]
    ranked = [row for row in found if "estimator" in row]
    assert {row["estimator"] for row in ranked} >= {"mc", "mc, linear", "first hit", "critic, lambda 0.9"}
    assert all(row["subsets"] == 2 and row["worlds"] == 2 for row in ranked)
    assert len(table.read_text(encoding="utf-8").splitlines()) == 1 + len(ranked)
    assert all(0 <= row["kl"] < 1 for row in ranked)
    for kind in ("estimator", "worlds"):
        picture = tmp_path / f"{kind}.png"
        subprocess.run([*script, "--draw", str(picture), "--table", str(table), "--by", kind], check=True)
        assert picture.read_bytes()[1:4] == b"PNG"
    sizes[sizes.index("--subsets") + 1] = "8"  # without a critic half of the worlds make steps
    child = subprocess.run(
        [*command[:3], *sizes, "--only", "^mc$", "--json"], capture_output=True, text=True, check=True
    )
    assert [json.loads(line).get("worlds") for line in child.stdout.splitlines()] == [None, 8]
    ways = ["natural", "damping 3", "output layer", "gradient", "half", "half, accepted"]
    child = subprocess.run(
        [*command[:3], *sizes, "--only", "^mc$", "--json", "--ways", *ways], capture_output=True, text=True, check=True
    )
    _, *rows = map(json.loads, child.stdout.splitlines())
    assert [row["estimator"] for row in rows] == ["mc", *(f"mc, {way}" for way in ways[1:])]
    words = ["--only", "^mc$|^Q", "--json", "--past", "1", "1", "--past-worlds", "3"]
    child = subprocess.run([*command[:3], *sizes, *words], capture_output=True, text=True, check=True)
    _, *rows = map(json.loads, child.stdout.splitlines())
    assert [row["estimator"] for row in rows] == ["mc", *estimators.OFF_POLICY]
