"""How near training on a GPU comes to the speed of the physics.

Trains some epochs (SB-TRPO, 4,096 worlds x 250 steps unless told otherwise), and lets a second pool follow the same
actions from the same states, once as a pool and once as Warp's step alone: all substeps and one forward, as one
recorded graph. Ratios are those of one run. Four epochs make a whole episode of 1,000 steps; the first epoch, in which
graphs are recorded, does not count.

    python benchmarks/training.py --json
    python benchmarks/training.py --task SafetyPointGoal2-v0 --profile

--profile tells the shares of an epoch: physics (Warp's step alone), task logic (what the pool takes beyond that: task,
resets, statistics), policy (what the rollout takes beyond that: network, noise, normaliser, storage), and update.

--startup tells how long it takes from the command `sbtrpo train` to the end of the first epoch, with an empty kernel
cache and with the cache that this leaves.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import sbtrpo
from sbtrpo.config import TrainConfig
from sbtrpo.envs.registry import PAPER_TASKS
from sbtrpo.learning.trainer import Trainer
from sbtrpo.tools import device_speed
from sbtrpo.tools.device_speed import Alone, Stopwatch, play


def settings(task: str, args: Any) -> dict[str, Any]:
    epoch = args.worlds * args.steps
    return {
        "task": task, "algo": args.algo, "engine": args.engine, "num_envs": args.worlds, "steps_per_epoch": epoch,
        "total_steps": epoch * (1 + args.epochs),
    }  # fmt: skip


def measure(task: str, args: Any) -> dict[str, Any]:
    free, started = device_speed.free_memory(args.engine), time.perf_counter()
    trainer = Trainer(TrainConfig(**settings(task, args)))
    pool: Any = trainer.collector.pool
    watch = Stopwatch(pool.physics.device)
    watch.whole(trainer.run_epoch)
    first, taken = time.perf_counter() - started, free - device_speed.free_memory(args.engine)
    watch.read()
    follower = device_speed.device_pool(task, args.worlds, args.engine)
    alone = Alone(follower)
    for action in device_speed.random_actions(follower, 5):  # in which graphs are recorded
        for ended in play(follower, [action], watch):
            alone.advance(action, ended, watch)
    watch.read()
    spent = dict.fromkeys(("physics", "pool", "rollout", "update"), 0.0)
    for _ in range(args.epochs):
        state = pool.state_dict()
        rollout = watch.whole(lambda: trainer.collector.collect(args.steps))
        spent["rollout"] += (seconds := watch.read())
        actions = [trainer.policy.to_env(action) for action in rollout.action]
        ended = rollout.terminated | rollout.truncated
        watch.whole(lambda rollout=rollout, seconds=seconds: trainer.learn(rollout, seconds))
        spent["update"] += watch.read()
        follower.load_state_dict(state)
        play(follower, actions, watch)
        spent["pool"] += watch.read()
        follower.load_state_dict(state)
        for action, ends in zip(actions, ended, strict=True):
            alone.advance(action, ends, watch)
        spent["physics"] += watch.read()
    steps, epoch = args.epochs * args.worlds * args.steps, spent["rollout"] + spent["update"]
    row = {
        "task": task,
        "algo": args.algo,
        "engine": args.engine,
        "worlds": args.worlds,
        "steps": args.steps,
        "physics_steps_per_s": round(steps / spent["physics"]),
        "pool_steps_per_s": round(steps / spent["pool"]),
        "rollout_steps_per_s": round(steps / spent["rollout"]),
        "epoch_steps_per_s": round(steps / epoch),
        "rollout_ratio": round(spent["physics"] / spent["rollout"], 3),
        "epoch_ratio": round(spent["physics"] / epoch, 3),
        "first_epoch_s": round(first, 1),
        "gib": round(taken / 2**30, 2),
        "faults": trainer.faults,
    }
    return row | (shares(spent, epoch) if args.profile else {})


def shares(spent: dict[str, float], epoch: float) -> dict[str, float]:
    """Of an epoch; what follows the same actions by itself is taken for the same part of it."""
    parts = {
        "physics": spent["physics"],
        "task_logic": spent["pool"] - spent["physics"],
        "policy": spent["rollout"] - spent["pool"],
        "update": spent["update"],
    }
    return {f"share_{name}": round(seconds / epoch, 3) for name, seconds in parts.items()}


def startup(task: str, args: Any) -> dict[str, Any]:
    """Seconds of a whole run of one epoch, from the command on."""
    epoch = args.worlds * args.steps
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "WARP_CACHE_PATH": f"{folder}/kernels"}
        row: dict[str, Any] = {"task": task, "engine": args.engine, "worlds": args.worlds, "steps": args.steps}
        for name in ("cold_s", "warm_s"):
            words = [
                "train", task, "--algo", args.algo, "--engine", args.engine, "--num-envs", args.worlds,
                "--steps-per-epoch", epoch, "--total-steps", epoch, "--out", f"{folder}/{name}", "--quiet",
            ]  # fmt: skip
            started = time.perf_counter()
            subprocess.run([sys.executable, "-m", "sbtrpo", *map(str, words)], check=True, env=environment)
            row[name] = round(time.perf_counter() - started, 1)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=sbtrpo.task_ids(), help="one task instead of the paper's eight")
    parser.add_argument("--algo", default="sb-trpo")
    parser.add_argument("--engine", choices=("gpu", "gpu-on-cpu"), default="gpu")
    parser.add_argument("--worlds", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=250, help="of each world in an epoch")
    parser.add_argument("--epochs", type=int, default=4, help="that count")
    parser.add_argument("--profile", action="store_true", help="shares of physics, task logic, policy and update")
    parser.add_argument("--startup", action="store_true", help="seconds to the end of the first epoch instead")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    args = parser.parse_args()
    if min(args.worlds, args.steps, args.epochs) < 1:
        parser.error("--worlds, --steps and --epochs must be at least 1")
    for task in [args.task] if args.task else PAPER_TASKS:
        row = startup(task, args) if args.startup else measure(task, args)
        device_speed.give_back(args.engine)
        print(json.dumps(row) if args.json else "\n".join(f"{k:<22}{v}" for k, v in row.items()) + "\n", flush=True)


if __name__ == "__main__":
    main()
