"""Peak memory of one update on many samples of Point Goal's size (60 observations, 2 actions, hidden 64 x 64).

    python benchmarks/memory.py [--samples 1000000] [--method sb-trpo|ppo_lag]

The update runs in a process of its own, whose peak (VmHWM in /proc, so Linux only) counts everything: Python, torch,
the batch and the update. PPO-Lag makes one pass with both critics. Printed are, as JSON, the method, the samples, the
MiB of the batch alone, the peak in MiB and the update's seconds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from sbtrpo.algorithms import make_method
from sbtrpo.algorithms.base import Batch
from sbtrpo.config import TrainConfig
from sbtrpo.nets.critics import Critics
from sbtrpo.nets.policy import Policy

OBSERVATION, ACTIONS, HIDDEN = 60, 2, (64, 64)
PIECE = 10_000
"""Samples made at a time, so that making the batch does not set the peak."""
BRIEF: dict[str, dict[str, Any]] = {"sb-trpo": {}, "ppo_lag": {"policy_passes": 1}}


def make_batch(policy: Policy, samples: int, heads: int, generator: torch.Generator) -> Batch:
    """Random observations, actions of the policy, and advantages that depend on them a little."""
    batch = Batch(
        obs=torch.empty((samples, OBSERVATION)),
        action=torch.empty((samples, ACTIONS)),
        log_prob=torch.empty(samples),
        advantages=torch.empty((2, samples)),
        targets=torch.randn((heads, samples), generator=generator) if heads else None,
    )
    for start in range(0, samples, PIECE):
        rows = slice(start, min(start + PIECE, samples))
        obs = torch.randn(batch.obs[rows].shape, generator=generator)
        action = policy.mean(obs) + torch.randn(batch.action[rows].shape, generator=generator)
        batch.obs[rows], batch.action[rows], batch.log_prob[rows] = obs, action, policy.log_prob(obs, action)
        noise = torch.randn((2, len(obs)), generator=generator)
        batch.advantages[:, rows] = noise + 0.3 * action.T * obs.T[:2]
    return batch


def update(method_name: str, samples: int) -> dict[str, object]:
    """One update, in this process."""
    generator = torch.Generator().manual_seed(0)
    config = TrainConfig(algo=method_name, **BRIEF[method_name])
    policy = Policy(OBSERVATION, ACTIONS, HIDDEN, generator)
    heads, rate = config.method.heads(), config.method.critic_learning_rate
    critics = Critics(heads, OBSERVATION, HIDDEN, rate, generator) if heads else None
    batch = make_batch(policy, samples, heads, generator)
    tensors = [batch.obs, batch.action, batch.log_prob, batch.advantages, batch.targets]
    method = make_method(policy, critics, config, generator)
    started = time.perf_counter()
    diagnostics = method.update(batch, 10.0, 0.0)
    seconds = time.perf_counter() - started
    if not diagnostics["accepted_step"]:
        raise SystemExit("the update changed nothing: its memory means nothing")
    status = Path("/proc/self/status").read_text()
    peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
    return {
        "method": method_name,
        "samples": samples,
        "batch_mib": round(sum(tensor.nbytes for tensor in tensors if tensor is not None) / 2**20),
        "peak_mib": round(peak / 2**10),
        "seconds": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--method", choices=list(BRIEF), default="sb-trpo")
    parser.add_argument("--here", action="store_true", help="in this process, whose peak may be of what it did before")
    options = parser.parse_args()
    if options.here:
        print(json.dumps(update(options.method, options.samples)))
        return
    command = [sys.executable, __file__, "--here", "--samples", str(options.samples), "--method", options.method]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr.strip() or f"the process was ended by signal {-done.returncode}")
    print(done.stdout.strip())


if __name__ == "__main__":
    main()
