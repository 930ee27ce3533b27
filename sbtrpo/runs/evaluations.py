"""Evaluations that are kept: a file each in `evaluations/`, none of which takes another's place.

A file is named after what was evaluated, and says it in full. Earlier versions had one `evaluation.json` in a run's
folder, which is still read.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

from sbtrpo.errors import sentence
from sbtrpo.files import write_atomically
from sbtrpo.runs.evaluation import Evaluation, Subject

FOLDER, EARLIER = "evaluations", "evaluation.json"
LONGEST = 120
"""Letters of a file's name, of which the task may have many."""


def as_json(result: Evaluation) -> bytes:
    """The content of a file."""
    return (json.dumps(result.as_dict(), indent=2) + "\n").encode()


def keep(result: Evaluation, of: Subject) -> Path:
    """Write an evaluation beside the others; returns its file, which is an earlier one where that says the same."""
    folder, content = of.home / FOLDER, as_json(result)
    folder.mkdir(parents=True, exist_ok=True)
    name = _name(result, of)
    for number in itertools.count(1):
        file = folder / (f"{name}.json" if number == 1 else f"{name}-{number}.json")
        if not file.exists():
            write_atomically(file, content, alone=False)
            return file
        if file.read_bytes() == content:
            return file
    raise AssertionError  # numbers do not end


def _name(result: Evaluation, of: Subject) -> str:
    what = of.stem or f"epoch{result.checkpoint}"
    how = {None: (), True: ("mean",), False: ("sampled",)}[result.deterministic]
    parts = [result.task, what, f"seed{result.seed}", f"{result.episodes}episodes", *how]
    parts += ["apart"] if result.faulted == "apart" else []
    return re.sub(r"[^\w.=-]+", "-", "-".join(parts))[-LONGEST:].strip("-.")


def _is_evaluation(content: Any) -> bool:
    """Whether it holds what every version has written of an evaluation."""
    if not isinstance(content, dict):
        return False
    interval = content.get("safety_probability_interval")
    numbers = [content.get(name) for name in ("episodes", "reward", "reward_std", "cost", "cost_std")]
    numbers += [content.get("safety_probability"), *(interval if isinstance(interval, list) else [])]
    right = len(numbers) == 8 and all(isinstance(x, int | float) and not isinstance(x, bool) for x in numbers)
    return right and isinstance(content.get("task"), str) and content.get("deterministic") in (True, False, None)


def kept(home: str | Path) -> list[tuple[Path, dict[str, Any]]]:
    """The evaluations in a folder, by name; an earlier version's single one comes first."""
    home = Path(home)
    files = [file for file in (home / EARLIER,) if file.exists()]
    found = []
    for file in [*files, *sorted((home / FOLDER).glob("*.json"))]:
        try:
            content = json.loads(file.read_bytes())
            if not _is_evaluation(content):
                raise ValueError("it does not say what one says")
        except ValueError as error:
            raise ValueError(f"{file} is no evaluation: {sentence(error)}; remove it") from error
        found.append((file, content))
    return found
