"""Whole episodes under two random policies on the GPU, beside those of the CPU engine and of the original.

On a GPU, 2,048 episodes under each policy; then what renews the CPU engine's episodes; then a try without a GPU:

    python -m tests.gpu.distributions
    python -m tests.gpu.distributions --engine cpu --worlds 512 --keep tests/data/cpu_episodes.npz
    python -m tests.gpu.distributions --engine gpu-on-cpu --worlds 16 --steps 60 --tasks SafetyHopperVelocity-v1

For each task the table has the means of return, cost, length, goals and every cost component on both sides, the 95 %
interval of their difference, and the p value of Kolmogorov and Smirnov's test that both are distributed alike. A task's
first line has the least p value, that of means of observations included, and the same times the number of tests.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from sbtrpo.envs.registry import PAPER_TASKS
from tests.parity.playing import KINDS, Comparison, Played, compare, play, recorded, worst

STORED = Path(__file__).parent.parent / "data" / "cpu_episodes.npz"
"""Episodes of the CPU engine."""


def keep(path: Path, tasks: dict[str, Played]) -> None:
    """Store episodes, without the means of their observations, beside those of other tasks."""
    columns = dict(np.load(path)) if path.exists() else {}
    columns |= {
        f"{task} {kind} {name}": values.astype(np.float32)
        for task, played in tasks.items()
        for kind, found in played.items()
        for name, values in found.items()
        if values.ndim == 1
    }
    with path.open("wb") as file:
        np.savez_compressed(file, **columns)


def kept(path: Path, task: str) -> Played | None:
    """What `keep` has stored of a task."""
    found: Played = {kind: {} for kind in KINDS}
    with np.load(path) as file:
        for key in file.files:
            name, kind, statistic = key.split(" ")
            if name == task:
                found[kind][statistic] = file[key].astype(float)
    return found if found["normal"] else None


def table(task: str, side: str, found: list[Comparison]) -> list[str]:
    """Lines for a person."""
    least, chance = worst(found)
    smallest = f"{least.p:.2g} ({least.kind}, {least.name})"
    lines = [f"{task}, beside {side}: least of {len(found)} p values {smallest}, times their number {chance:.2g}"]
    for x in found:
        if not x.name.startswith("obs_"):
            interval = f"{x.ours - x.theirs:+8.3g} ± {x.half_width:<8.2g}"
            lines.append(f"  {x.kind:7}{x.name:22}{x.ours:10.4g}{x.theirs:10.4g}  {interval} p {x.p:.3f}")
    return lines


def examine(
    task: str, engine: str, worlds: int, steps: int | None, against: Path | None
) -> tuple[Played, dict[str, Any]]:
    """Play a task and compare; prints the table as it comes."""
    started = time.perf_counter()
    played, faults = play(task, worlds, engine, most=steps)
    seconds = time.perf_counter() - started
    counts = {kind: len(played[kind]["return"]) for kind in KINDS}
    result: dict[str, Any] = {"task": task, "engine": engine, "episodes": counts, "faults": faults, "seconds": seconds}
    print(f"{task}: {sum(counts.values())} episodes on {engine} in {seconds:.0f} s, {faults} faults", flush=True)
    sides = {"the recordings": recorded(task)}
    if against is not None and against.exists() and (theirs := kept(against, task)):
        sides["the CPU engine"] = theirs
    for side, theirs in sides.items():
        if min(counts.values()) > 1:
            found = compare(played, theirs)
            print("\n".join(table(task, side, found)), flush=True)
            result[side] = {"least p times tests": worst(found)[1], "statistics": [asdict(x) for x in found]}
    return played, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="gpu", choices=["cpu", "gpu", "gpu-on-cpu"])
    parser.add_argument("--worlds", type=int, default=4096, help="half of them under each policy, an episode each")
    parser.add_argument("--steps", type=int, help="at most so many; episodes that go on are left out")
    parser.add_argument("--tasks", nargs="+", default=list(PAPER_TASKS))
    parser.add_argument("--against", type=Path, default=STORED, help="episodes of another engine")
    parser.add_argument("--keep", type=Path, help="store the episodes in this .npz")
    parser.add_argument("--json", type=Path, help="write the comparisons here")
    chosen = parser.parse_args()
    episodes, results = {}, []
    for task in chosen.tasks:
        against = None if chosen.keep == chosen.against else chosen.against
        episodes[task], result = examine(task, chosen.engine, chosen.worlds, chosen.steps, against)
        results.append(result)
        if chosen.keep is not None:
            keep(chosen.keep, episodes)
        if chosen.json is not None:
            chosen.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
