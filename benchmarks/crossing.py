"""From which size on torch is faster than NumPy, and what a loss costs beside slopes written by hand.

    python benchmarks/crossing.py [--json] [--device cpu] [--threads 1] [--repeats 20] [--kinds acting ...]

Both forms of `sbtrpo/nets/forms.py` do the same work on the same random numbers (60 observations, 2 actions, 64-64):

- acting: a step of `Collector` with so many worlds, in a pool that does nothing: normalise, network, sample, store;
  on a GPU from a pool of NumPy arrays, whose numbers travel in every step, and from a pool of tensors, too;
- critics: a minibatch of two critics, forward, backward, clipping and Adam;
- policy: the same of PPO's policy, with slopes written by hand;
- both: a minibatch of PPO's policy and of two critics, clipped together;
- pass: PPO's passes, policy and both critics, by slopes in the form that the rule takes, and by autograd of the loss.

The rule's constants MANY_WORLDS and MANY_ROWS are the crossings of `acting` and `both`: the least size from which on
torch is faster at every size measured. Figures are the least of all repeats, taken in turns. With one thread on the CPU
they are CPU time, which other processes do not lengthen; otherwise they are wall time, and the machine should have
nothing else to do.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from sbtrpo.algorithms.base import Batch
from sbtrpo.algorithms.first_order import FirstOrderMethod, Minibatch
from sbtrpo.algorithms.ppo import PPO
from sbtrpo.config import TrainConfig
from sbtrpo.envs import Pool
from sbtrpo.learning.rollout import Collector
from sbtrpo.nets.critics import Critics
from sbtrpo.nets.forms import Form, NumpyForm, TorchForm, minibatch_form
from sbtrpo.nets.policy import Policy

OBSERVATION, ACTIONS, HIDDEN = 60, 2, (64, 64)
WORLDS = (20, 50, 100, 200, 400, 800, 1600, 3200, 6400)
ROWS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536)
KINDS = ("acting", "critics", "policy", "both", "pass")
PASS_ROWS, PASS_SAMPLES = (64, 1024), 8192
L2, MAX_NORM, RATE = 1e-3, 40.0, 1e-4


class StillPool:
    """Worlds in which nothing happens: the same arrays in every step, on the host or on a device."""

    def __init__(self, worlds: int, device: str | None = None) -> None:
        self.num_worlds, self.faults, self.last_error = worlds, 0, ""
        self.task, self.spec = SimpleNamespace(observation_size=OBSERVATION), SimpleNamespace(episode_length=1000)
        obs = np.random.default_rng(0).standard_normal((worlds, OBSERVATION))
        arrays = (obs, obs[:, 0].copy(), np.zeros(worlds), np.zeros(worlds, bool), np.zeros(worlds, bool))
        self._arrays = arrays if device is None else tuple(torch.from_numpy(array).to(device) for array in arrays)

    def reset(self) -> tuple[Any, dict[str, Any]]:
        """First observations."""
        return self._arrays[0], {}

    def step(self, action: Any) -> tuple[Any, ...]:
        """The same as before."""
        return (*self._arrays, {"fault": self._arrays[-1]})

    def wake(self) -> None:
        """Nobody sleeps."""


class PPOByLoss(PPO[Any]):
    """PPO as its paper writes it."""

    def loss(self, batch: Minibatch) -> Tensor:
        """-mean min(ρ A, clip(ρ, 1 - ε, 1 + ε) A)"""
        clipped = torch.clamp(batch.ratio, 1 - self.settings.clip, 1 + self.settings.clip)
        return -torch.minimum(batch.ratio * batch.advantage_r, clipped * batch.advantage_r).mean()


# ---- what is timed ---------------------------------------------------------------------------------------------------


def acting(form: Form, worlds: int, device: str, tensors: bool = False) -> tuple[Callable[[], object], int]:
    """So many steps of a collector whose policy is on a device."""
    steps = max(5 if device == "cpu" else 50, 2000 // worlds)  # to a GPU a rollout goes as a whole
    policy = Policy(OBSERVATION, ACTIONS, HIDDEN, torch.Generator().manual_seed(0), device)
    pool = cast("Pool", StillPool(worlds, device if tensors else None))
    collector = Collector(pool, policy, torch.Generator().manual_seed(1), form=form)
    collector.start()
    return lambda: collector.collect(steps), steps


def critics_minibatch(form: Form, rows: int) -> tuple[Callable[[], object], int]:
    critics = Critics(2, OBSERVATION, HIDDEN, RATE, torch.Generator().manual_seed(0), form.device, form)
    generator = torch.Generator().manual_seed(1)
    obs, targets = (form.array(torch.randn(shape, generator=generator)) for shape in ((rows, OBSERVATION), (2, rows)))

    def minibatch() -> None:
        critics.backward(obs, targets, L2)
        form.clip([critics.stack.gradient], MAX_NORM)
        critics.step()

    return _often(minibatch, rows)


def policy_minibatch(form: Form, rows: int, critics: bool = False) -> tuple[Callable[[], object], int]:
    method, batch = _method(PPO, form.device, rows, rows, critics)
    method.use(form)
    survey = method.start(batch)
    fixed = method.prepare(survey.samples, [0.0], 0.0)
    actor, samples, values = method.actor, survey.samples, method.critics

    def minibatch() -> None:
        method.objective(actor, samples, survey.log_std, fixed)
        together = [actor.stack.gradient]
        if values is not None:
            values.backward(samples.obs, samples.targets, L2)
            together.append(values.stack.gradient)
        method.clip(together)
        actor.adam.step(actor.stack.theta, actor.stack.gradient, RATE)
        if values is not None:
            values.step()

    return _often(minibatch, rows)


def both_minibatch(form: Form, rows: int) -> tuple[Callable[[], object], int]:
    return policy_minibatch(form, rows, critics=True)


def passes(kind: type[PPO[Any]], device: str, rows: int) -> tuple[Callable[[], object], int]:
    method, batch = _method(kind, device, rows, PASS_SAMPLES, critics=True)
    samples = method.start(batch).samples
    fixed = method.prepare(samples, [0.0], 0.0)
    return lambda: method.run(samples, 1e-9, method.critics, fixed, method.objective), 1


def _often(call: Callable[[], object], rows: int) -> tuple[Callable[[], object], int]:
    """So often that a clock sees it."""
    times = max(1, 4096 // rows)

    def several() -> None:
        for _ in range(times):
            call()

    return several, times


def _method(
    kind: type[PPO[Any]], device: str, rows: int, samples: int, critics: bool = False
) -> tuple[FirstOrderMethod[Any], Batch]:
    """PPO, and random samples."""
    generator = torch.Generator().manual_seed(0)
    config = TrainConfig(algo="ppo", policy_batch=rows, policy_passes=1, target_kl=1e9, device=device)
    policy = Policy(OBSERVATION, ACTIONS, HIDDEN, generator, device)
    heads = Critics(2, OBSERVATION, HIDDEN, RATE, generator, device) if critics else None
    obs, advantages = (
        torch.randn(shape, generator=generator).to(device) for shape in ((samples, OBSERVATION), (2, samples))
    )
    action = policy.mean(obs) + torch.randn((samples, ACTIONS), generator=generator).to(device)
    batch = Batch(obs, action, policy.log_prob(obs, action), advantages, advantages if critics else None)
    return kind(policy, heads, config, generator), batch


# ---- measuring -------------------------------------------------------------------------------------------------------


def least(contestants: dict[str, tuple[Callable[[], object], int]], repeats: int, arguments: Any) -> dict[str, float]:
    """Microseconds of each, the least of all repeats."""
    on_gpu = torch.device(arguments.device).type != "cpu"
    clock = time.thread_time if arguments.threads == 1 and not on_gpu else time.perf_counter
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(repeats + 1):  # the first one warms up, and is seldom the least
        for name, (call, times) in contestants.items():
            started = clock()
            call()
            if on_gpu:
                torch.cuda.synchronize()
            best[name] = min(best[name], (clock() - started) / times)
    return {name: 1e6 * seconds for name, seconds in best.items()}


def crossing(sizes: list[int], ratios: list[float]) -> int | None:
    """The least size from which on every ratio is above 1; None if the last is not.

    >>> crossing([1, 2, 4, 8], [0.5, 1.1, 0.9, 1.2]), crossing([1, 2], [2.0, 0.5])
    (8, None)
    """
    faster = [size for place, size in enumerate(sizes) if min(ratios[place:]) > 1]
    return faster[0] if faster else None


def compare(arguments: Any) -> Iterator[dict[str, Any]]:
    """A row for each size: microseconds of NumPy and of torch."""
    device, tensors = arguments.device, TorchForm(arguments.device)
    kinds: dict[str, tuple[tuple[int, ...], Callable[[Form, int], tuple[Callable[[], object], int]]]] = {
        "acting": (WORLDS, lambda form, n: acting(form, n, device)),
        "critics": (ROWS, critics_minibatch),
        "policy": (ROWS, policy_minibatch),
        "both": (ROWS, both_minibatch),
    }
    if torch.device(device).type != "cpu":
        kinds["acting, tensors"] = WORLDS, lambda form, n: acting(form, n, device, isinstance(form, TorchForm))
    for kind, (sizes, make) in kinds.items():
        if kind.partition(",")[0] not in arguments.kinds:
            continue
        ratios, host = [], NumpyForm(learner=device) if kind == "acting" else NumpyForm()
        for size in sizes:
            taken = least({"numpy_us": make(host, size), "torch_us": make(tensors, size)}, arguments.repeats, arguments)
            ratios.append(taken["numpy_us"] / taken["torch_us"])
            yield {"kind": kind, "size": size, **taken, "ratio": ratios[-1]}
        yield {"kind": kind, "crossing": crossing(list(sizes), ratios)}


def compare_passes(arguments: Any) -> Iterator[dict[str, Any]]:
    """A row for each size of minibatch: microseconds of a pass by slopes and by loss."""
    for rows in PASS_ROWS:
        contestants = {
            "slopes_us": passes(PPO, arguments.device, rows),
            "loss_us": passes(PPOByLoss, arguments.device, rows),
        }
        taken = least(contestants, arguments.repeats, arguments)
        form = type(minibatch_form(arguments.device, rows)).__name__
        yield {"kind": "pass", "size": rows, "slopes_in": form, **taken, "ratio": taken["loss_us"] / taken["slopes_us"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")
    parser.add_argument("--device", default="cpu", help="of the torch form: cpu or cuda")
    parser.add_argument("--threads", type=int, default=0, help="of torch and of NumPy; 0 leaves their choice")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS, help="what is timed; all if left out")
    arguments = parser.parse_args()
    limits: Any = contextlib.nullcontext()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
        limits = threadpool_limits(arguments.threads, user_api="blas")
    if not arguments.json:
        print(f"torch on {arguments.device}, {torch.get_num_threads()} threads; microseconds a call")
    with limits:
        passing = compare_passes(arguments) if "pass" in arguments.kinds else ()
        for row in itertools.chain(compare(arguments), passing):
            print(json.dumps(row) if arguments.json else line(row), flush=True)


def line(row: dict[str, Any]) -> str:
    if "crossing" in row:
        return (
            f"{row['kind']}: torch is faster from {row['crossing']} on" if row["crossing"] else f"{row['kind']}: never"
        )
    one, other = ("slopes", "loss") if row["kind"] == "pass" else ("numpy", "torch")
    return (
        f"{row['kind']:<16}{row['size']:>8}{row[f'{one}_us']:>12.1f} {one}{row[f'{other}_us']:>12.1f} {other}"
        f"{row['ratio']:>8.2f}"
    )


if __name__ == "__main__":
    main()
