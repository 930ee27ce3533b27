"""How near the pool comes to the speed of the physics.

Measures, in one run and on the same threads, a pool's environment steps per second and the bound: the engine's call
alone, with the same substeps and stages, on worlds that follow the same actions from the same layouts. The two take
turns in short slices, so that noise of the machine falls on both. Episodes are staggered, so that resets come at the
rate of a long run, and count as part of the pool's time.

    python benchmarks/engine.py --json
    python benchmarks/engine.py --task SafetyPointGoal2-v0 --worlds 200 --seconds 20
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

import sbtrpo
from sbtrpo.envs.physics.cpu import available_cores
from sbtrpo.envs.registry import PAPER_TASKS
from sbtrpo.tools.speed import measure_speed


def reset_seconds(pool: sbtrpo.Pool) -> float:
    """Seconds to reset all worlds: the median of five resets."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        pool.reset()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def measure(task: str, worlds: int, threads: int, seconds: float, sleep: bool = True) -> dict[str, Any]:
    speed = measure_speed(task, worlds, seconds, threads, sleep)
    pool = sbtrpo.make_pool(task, worlds, seed=0, threads=threads, sleep=sleep)
    return {
        "task": task,
        "worlds": worlds,
        "threads": threads,
        "pool_steps_per_s": round(speed.pool),
        "physics_steps_per_s": round(speed.physics),
        "ratio": round(speed.ratio, 3),
        "reset_ms_per_world": round(1e3 * reset_seconds(pool) / worlds, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=sbtrpo.task_ids(), help="one task instead of the paper's eight")
    parser.add_argument("--worlds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=0, help="0: all cores this process may use")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each task")
    parser.add_argument("--no-sleep", action="store_true", help="keep resting bodies in the solver")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    args = parser.parse_args()
    if args.worlds < 1 or args.threads < 0 or args.seconds <= 0:
        parser.error("--worlds must be at least 1, --threads at least 0, and --seconds above 0")
    threads = args.threads or available_cores()
    for task in [args.task] if args.task else PAPER_TASKS:
        row = measure(task, args.worlds, threads, args.seconds, sleep=not args.no_sleep)
        if args.json:
            print(json.dumps(row), flush=True)
        else:
            print(
                f"{row['task']:26} {row['worlds']:5} worlds {row['threads']:3} threads"
                f" {row['pool_steps_per_s']:8} of {row['physics_steps_per_s']:8} steps/s = {row['ratio']:.3f},"
                f" reset {row['reset_ms_per_world']} ms a world",
                flush=True,
            )


if __name__ == "__main__":
    main()
