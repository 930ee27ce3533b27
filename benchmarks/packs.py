"""What it gains to train several learners on one simulator on a GPU.

    python benchmarks/packs.py --json
    python benchmarks/packs.py --packs 1 4 16 --algos sb-trpo trpo_lag --worlds 256 --steps 250

For each number of learners, of `worlds` worlds each and with other seeds (methods take turns), it measures

- steps a second of all learners together, of rollouts and of whole epochs;
- the seconds of an update for each learner, updated together and one after another, in turns on the same learners;
- the seconds of solving for the natural gradients, of the same requests, together and one after another.

A single learner is on its own, as `sbtrpo train` has it. Times are medians over epochs, after one that warms up.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from sbtrpo.algorithms.together import SharedRegion, Solve
from sbtrpo.algorithms.trust_region import Solution, TrustRegion, TrustRegionMethod
from sbtrpo.benchmark.pack import SharedPool, one_after_another
from sbtrpo.config import TrainConfig
from sbtrpo.learning.rollout import Rollout
from sbtrpo.learning.trainer import Epoch, Trainer

Times = dict[str, list[float]]


def settle() -> None:
    """Wait for the GPU."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


@contextmanager
def timed(times: Times, name: str) -> Iterator[None]:
    settle()
    started = time.perf_counter()
    yield
    settle()
    times[name].append(time.perf_counter() - started)


@contextmanager
def noting_solves(times: Times) -> Iterator[None]:
    """Time solutions that are asked for together, and the same ones by one."""
    answer: Callable[[Sequence[Solve]], list[Solution]] = Solve.answer

    def noting(asked: Sequence[Solve]) -> list[Solution]:
        with timed(times, "solve_together"):
            found = answer(asked)
        with timed(times, "solve_apart"):
            for one in asked:
                TrustRegion.solve(one.region, one.b, one.settings, one.add)
        return found

    Solve.answer = noting  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        Solve.answer = answer  # type: ignore[method-assign]


def regions(trainers: Sequence[Trainer], kind: type[TrustRegion]) -> None:
    for trainer in trainers:
        if isinstance(trainer.method, TrustRegionMethod):
            trainer.method.region = kind


class Learners:
    """Trainers that share a simulator, if there are several."""

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        self.trainers, self.times = list(trainers), defaultdict[str, list[float]](list)
        self._pack: SharedPool | None = None
        if len(trainers) > 1:
            from sbtrpo.benchmark.pack_device import DevicePack

            self._pack = DevicePack(trainers)

    def epoch(self, how: str, times: Times) -> None:
        """A rollout, and updates `together`, `apart`, or together with a closer look at what is solved (`solve`)."""
        first = self.trainers[0]
        with timed(times, "rollout"):
            if self._pack is None:
                outcomes: Sequence[Any] = [first.collector.collect(first.steps_per_world)]
            else:
                outcomes = self._pack.collect(self.trainers, first.steps_per_world)
        assert all(isinstance(outcome, Rollout) for outcome in outcomes), outcomes
        if how == "apart" or self._pack is None:
            regions(self.trainers, TrustRegion)
            with timed(times, "apart"):
                epochs = list(one_after_another(self.trainers, outcomes, 1.0))
        elif how == "solve":
            regions(self.trainers, SharedRegion)
            with noting_solves(times):
                epochs = list(self._pack.learn(self.trainers, outcomes, 1.0))
        else:
            regions(self.trainers, SharedRegion)
            with timed(times, "together"):
                epochs = list(self._pack.learn(self.trainers, outcomes, 1.0))
        for epoch in epochs:
            if not isinstance(epoch, Epoch):
                raise RuntimeError("a learner failed") from (epoch if isinstance(epoch, Exception) else None)


def measure(configs: Sequence[TrainConfig], epochs: int) -> dict[str, Any]:
    count = len(configs)
    started = time.perf_counter()
    learners = Learners([Trainer(config) for config in configs])
    for how in ("together", "apart", "solve"):
        learners.epoch(how, defaultdict(list))
    settle()
    warm_up = time.perf_counter() - started
    times: Times = defaultdict(list)
    for _ in range(epochs):
        for how in ("together", "apart", "solve"):
            learners.epoch(how, times)
    median = {name: statistics.median(values) for name, values in times.items()}
    update = median.get("together", median["apart"])
    steps = count * configs[0].steps_per_epoch
    row = {
        "learners": count,
        "worlds_each": configs[0].num_envs,
        "steps_each": configs[0].steps_per_epoch // configs[0].num_envs,
        "rollout_steps_per_s": round(steps / median["rollout"]),
        "steps_per_s": round(steps / (median["rollout"] + update)),
        "rollout_s": round(median["rollout"], 4),
        "update_ms_per_learner_together": round(1e3 * update / count, 2),
        "update_ms_per_learner_apart": round(1e3 * median["apart"] / count, 2),
        "warm_up_s": round(warm_up, 1),
    }
    for how in ("together", "apart"):
        if (name := f"solve_{how}") in median:
            row[f"solve_ms_per_learner_{how}"] = round(1e3 * median[name] / count, 2)
    if torch.cuda.is_available():
        row["peak_gib_of_torch"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
        torch.cuda.reset_peak_memory_stats()
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="SafetyPointGoal2-v0")
    parser.add_argument("--engine", default="gpu", choices=("gpu", "gpu-on-cpu"))
    parser.add_argument("--packs", type=int, nargs="+", default=[1, 2, 4, 8, 16], help="numbers of learners")
    parser.add_argument("--algos", nargs="+", default=["sb-trpo"], help="the learners' methods, in turns")
    parser.add_argument("--worlds", type=int, default=256, help="of each learner")
    parser.add_argument("--steps", type=int, default=250, help="of each world in an epoch")
    parser.add_argument("--epochs", type=int, default=3, help="of each kind, after one that warms up")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    args = parser.parse_args()
    if min(*args.packs, args.worlds, args.steps, args.epochs) < 1:
        parser.error("--packs, --worlds, --steps and --epochs must be at least 1")
    size = args.worlds * args.steps
    for count in args.packs:
        configs = [
            TrainConfig(
                task=args.task, engine=args.engine, algo=args.algos[k % len(args.algos)], seed=k,
                num_envs=args.worlds, steps_per_epoch=size, total_steps=1000 * size,
            )
            for k in range(count)
        ]  # fmt: skip
        row = measure(configs, args.epochs)
        if args.json:
            print(json.dumps(row), flush=True)
            continue
        print(
            f"{count:3} learners: {row['steps_per_s']:8} steps/s ({row['rollout_steps_per_s']} of rollouts), update of"
            f" each {row['update_ms_per_learner_together']} ms together, {row['update_ms_per_learner_apart']} ms alone",
            flush=True,
        )


if __name__ == "__main__":
    main()
