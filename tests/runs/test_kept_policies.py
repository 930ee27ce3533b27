"""The policies of this repository: whole, usable, and what their cards say."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any

import pytest

from sbtrpo.runs.evaluation import evaluate

ROOT = Path(__file__).parents[2]
CARDS = sorted((ROOT / "policies").glob("*.toml"))


def card(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def test_there_is_one_a_task_and_at_most_one_that_began_with_it_and_earns_more_no_less_safely() -> None:
    cards = {path.stem: card(path) for path in CARDS}
    tasks = [said["task"] for name, said in cards.items() if not name.endswith("_polished")]
    assert len(tasks) == len(set(tasks)) == 8
    for name in cards:
        if name.endswith("_polished"):
            start = name.removesuffix("_polished")
            assert cards[name]["task"] == cards[start]["task"]
            assert f"--init-from {start}.safetensors " in cards[name]["commands"]["train"]
            now, before = (cards[one]["evaluation"] for one in (name, start))
            assert now["safe_reward"] > before["safe_reward"]
            (_, high), (low, _) = (found["safety_probability_interval"] for found in (now, before))
            assert high >= low  # less safe, if at all, by no more than a thousand episodes can tell
    assert {path.stem for path in CARDS} == {path.stem for path in (ROOT / "policies").glob("*.safetensors")}


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.stem)
def test_a_policy_is_what_its_card_says(path: Path) -> None:
    said = card(path)
    file = path.with_name(said["file"])
    assert hashlib.sha256(file.read_bytes()).hexdigest() == said["sha256"]
    assert said["evaluation"]["episodes"] == 1000
    assert said["commands"]["train"].startswith(f"sbtrpo train {said['task']} ")
    assert file.stat().st_size < 500_000


@pytest.mark.parametrize("name", ["hopper", "car_circle"])
def test_the_safe_ones_are_safe(name: str) -> None:
    found = evaluate(ROOT / "policies" / f"{name}.safetensors", episodes=20, seed=11)
    assert found.safety_probability >= 0.9
    expected = card(ROOT / "policies" / f"{name}.toml")["evaluation"]["reward"]
    assert found.reward == pytest.approx(expected, rel=0.2)
