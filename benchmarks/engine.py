"""How near the pool comes to the speed of the physics.

Measures, in one run and on the same threads, a pool's environment steps per second and the bound: the engine's call
alone, with the same substeps and stages, on worlds that follow the same actions from the same layouts. The two take
turns in short slices, so that noise of the machine falls on both. Episodes are staggered, so that resets come at the
rate of a long run, and count as part of the pool's time.

    python benchmarks/engine.py --json
    python benchmarks/engine.py --task SafetyPointGoal2-v0 --worlds 200 --seconds 20

On a GPU the bound is Warp's step alone, all substeps and one forward, as one recorded graph. Beside it stand the memory
that a pool takes, and the seconds until its first step is done: kernels that are not in Warp's cache are compiled then.

    python benchmarks/engine.py --engine gpu --json
    WARP_CACHE_PATH=$(mktemp -d) python benchmarks/engine.py --engine gpu --task SafetyPointGoal2-v0

With --crossing, pools of both engines at many sizes, and from how many worlds on the GPU is the faster one at every
size measured; `CROSSINGS` of sbtrpo/envs/engines.py is that, for each core.

    python benchmarks/engine.py --engine gpu --crossing --json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import sbtrpo
from sbtrpo.envs.physics.cpu import available_cores
from sbtrpo.envs.registry import PAPER_TASKS
from sbtrpo.tools.speed import SLICE, WARM_UP, measure_pool, measure_speed

WORLDS, GPU_WORLDS = 20, 4096
SIZES = (64, 128, 256, 512, 1024, 2048, 4096, 8192)


def reset_seconds(pool: sbtrpo.Pool) -> float:
    """Seconds to reset all worlds: the median of five resets."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        pool.reset()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def measure(task: str, args: Any) -> dict[str, Any]:
    speed = measure_speed(task, args.worlds, args.seconds, args.threads, not args.no_sleep)
    pool = sbtrpo.make_pool(task, args.worlds, seed=0, threads=args.threads, sleep=not args.no_sleep)
    return {
        "task": task,
        "worlds": args.worlds,
        "threads": args.threads,
        "pool_steps_per_s": round(speed.pool),
        "physics_steps_per_s": round(speed.physics),
        "ratio": round(speed.ratio, 3),
        "reset_ms_per_world": round(1e3 * reset_seconds(pool) / args.worlds, 3),
    }


def measure_on_gpu(task: str, args: Any) -> dict[str, Any]:
    from sbtrpo.tools import device_speed  # needs optional packages

    options = {"sleep": not args.no_sleep}
    free, started = device_speed.free_memory(args.engine), time.perf_counter()
    pool = device_speed.device_pool(task, args.worlds, args.engine, **options)
    watch = device_speed.Stopwatch(pool.physics.device)
    for action in device_speed.random_actions(pool, 1):
        pool.step(action)
    watch.wait()
    ready = time.perf_counter() - started
    device_speed.play(pool, device_speed.random_actions(pool, args.warm_up), watch)
    taken = free - device_speed.free_memory(args.engine)
    watch.read()
    watch.whole(pool.reset)
    reset, faults = watch.read(), pool.faults
    del pool
    device_speed.give_back(args.engine)
    speed = device_speed.measure_device_speed(
        task, args.worlds, args.seconds, args.engine, args.warm_up, args.slice, **options
    )
    device_speed.give_back(args.engine)
    return {
        "task": task,
        "worlds": args.worlds,
        "engine": args.engine,
        "pool_steps_per_s": round(speed.pool),
        "physics_steps_per_s": round(speed.physics),
        "ratio": round(speed.ratio, 3),
        "reset_ms_per_world": round(1e3 * reset / args.worlds, 3),
        "ready_s": round(ready, 1),
        "pool_gib": round(taken / 2**30, 2),
        "faults": faults,
    }


def crossings(task: str, args: Any) -> Iterator[dict[str, Any]]:
    """Both engines at every size, and the least size from which on the GPU is the faster one."""
    from sbtrpo.tools import device_speed

    faster: list[int] = []
    for worlds in args.sizes:
        cpu = measure_pool(task, worlds, args.seconds, args.threads, args.warm_up, args.slice)
        gpu = device_speed.measure_device_pool(task, worlds, args.seconds, args.engine, args.warm_up, args.slice)
        device_speed.give_back(args.engine)
        faster = [*faster, worlds] if gpu > cpu else []
        yield {
            "task": task,
            "worlds": worlds,
            "threads": args.threads,
            "cpu_steps_per_s": round(cpu),
            "gpu_steps_per_s": round(gpu),
            "ratio": round(gpu / cpu, 2),
        }
    crossing = faster[0] if faster else None
    yield {"task": task, "crossing": crossing, "for_each_core": crossing and crossing / args.threads}


def line(row: dict[str, Any]) -> str:
    """A row for people."""
    return "  ".join(
        f"{value:<26}" if name == "task" else f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}"
        for name, value in row.items()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=sbtrpo.task_ids(), help="one task instead of the paper's eight")
    parser.add_argument("--engine", choices=("cpu", "gpu", "gpu-on-cpu"), default="cpu")
    parser.add_argument("--worlds", type=int, help=f"by default {WORLDS}; on a GPU {GPU_WORLDS}")
    parser.add_argument("--threads", type=int, default=0, help="of the CPU engine; 0: all cores this process may use")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each task, or for each pool with --crossing")
    parser.add_argument("--no-sleep", action="store_true", help="keep resting bodies in the solver")
    parser.add_argument("--crossing", action="store_true", help="from how many worlds on is the GPU faster?")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of worlds, with --crossing")
    parser.add_argument("--warm-up", type=int, default=WARM_UP, help="steps on a GPU that do not count")
    parser.add_argument("--slice", type=int, default=SLICE, help="steps on a GPU that are timed together")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    args = parser.parse_args()
    if args.worlds is None:
        args.worlds = WORLDS if args.engine == "cpu" else GPU_WORLDS
    if min(args.worlds, args.slice, *args.sizes) < 1 or min(args.threads, args.warm_up) < 0 or args.seconds < 0:
        parser.error("--worlds, --sizes and --slice must be at least 1, --threads, --warm-up and --seconds at least 0")
    if args.crossing and args.engine == "cpu":
        parser.error("--crossing compares a GPU with the CPU: add --engine gpu")
    args.threads = args.threads or available_cores()
    for task in [args.task] if args.task else PAPER_TASKS:
        if args.crossing:
            rows = crossings(task, args)
        else:
            rows = iter([measure(task, args) if args.engine == "cpu" else measure_on_gpu(task, args)])
        for row in rows:
            print(json.dumps(row) if args.json else line(row), flush=True)


if __name__ == "__main__":
    main()
