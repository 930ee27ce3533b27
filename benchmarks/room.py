"""How many contacts and constraint rows the worlds of a task have, beside the room that the GPU engine makes for them.

Rows are those of the world that has the most, contacts an average over all worlds, as room is counted; both are the
highest of all steps. Actions are uniform, or those of a trained policy.

    python benchmarks/room.py --json
    python benchmarks/room.py --run runs/SafetyPointGoal2-v0/sb-trpo/seed0-12345678
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
import torch
import warp as wp

import sbtrpo
from sbtrpo.envs.gpu import GpuPool
from sbtrpo.envs.registry import PAPER_TASKS
from sbtrpo.runs.folder import RunFolder


def measure(task: str, worlds: int, steps: int, engine: str, run: str | None) -> dict[str, Any]:
    pool = sbtrpo.make_pool(task, worlds, seed=7, engine=engine)
    assert isinstance(pool, GpuPool)
    obs, _ = pool.reset()
    policy, space = sbtrpo.load_policy(run) if run else None, pool.single_action_space
    contacts, rows, drawn = 0, 0, np.random.default_rng(7)
    for _ in range(steps):
        shape = (worlds, *space.shape)
        action = drawn.uniform(space.low, space.high, shape) if policy is None else policy.act(obs.cpu().numpy())
        obs, *_ = pool.step(torch.from_numpy(action).to(obs.device))
        contacts = max(contacts, int(wp.to_torch(pool.physics.data.nacon)))
        rows = max(rows, int(wp.to_torch(pool.physics.data.nefc).max()))
    return {
        "task": task,
        "worlds": worlds,
        "policy": "trained" if run else "uniform",
        "contacts": round(contacts / worlds, 2),
        "room_for_contacts": pool.physics.room[0],
        "rows": rows,
        "room_for_rows": pool.physics.room[1],
        "faults": pool.faults,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", help="one task instead of the paper's eight")
    parser.add_argument("--run", help="a run, for its task and its policy")
    parser.add_argument("--worlds", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--engine", choices=("gpu", "gpu-on-cpu"), default="gpu")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    args = parser.parse_args()
    only = RunFolder.open(args.run).config.task if args.run else args.task
    tasks = [only] if only else PAPER_TASKS
    for task in tasks:
        row = measure(task, args.worlds, args.steps, args.engine, args.run)
        if args.json:
            print(json.dumps(row), flush=True)
        else:
            print(
                f"{row['task']:26} {row['policy']:8} contacts {row['contacts']:6} of {row['room_for_contacts']:4},"
                f" rows {row['rows']:4} of {row['room_for_rows']:4}, faults {row['faults']}",
                flush=True,
            )


if __name__ == "__main__":
    main()
