"""Which estimate of the cost's advantage makes steps that hold on other episodes: a frozen policy, no training.

A run's policy plays one large epoch. From some of the worlds of its first quarter each estimator makes the best cost
step within the trust region, F^-1 of its gradient; half of the worlds judge that step by gradients of their own: what
does it do, to first order, to the discounted cost there, to the discounted first hit, and to the return? One that
estimates noise does nothing. `share` is what holds of the change that the step promises in its own worlds, `kl` how far
it moves the policy: the trust region's damped metric lets some directions move it further than others. From the quarter
that is left critics are learnt, of the cost and of first hits, in the place of ones that have seen many earlier epochs,
and networks that tell the advantage itself from observation and action ("learnt"). Where --only asks for none of these,
the worlds of that quarter make steps, too.

    python benchmarks/estimators.py runs/SafetyPointGoal2-v0/sb-trpo/seed0-12345678 --worlds 1600 --json
    python benchmarks/estimators.py RUN --worlds 8192 --engine gpu --subsets 100 400 1600

Numbers are means over disjoint subsets of the worlds; `error` is their standard error. --table adds the rows to a CSV
file, and --draw makes the figure of such a file.

    python benchmarks/estimators.py RUN --worlds 8192 --engine gpu --subsets 100 400 --table results/estimators.csv
    python benchmarks/estimators.py --draw docs/images/estimators.png --table results/estimators.csv

What a larger batch is worth, and the figure of it:

    python benchmarks/estimators.py RUN --worlds 12800 --engine gpu --subsets 20 100 400 1600 6400 \\
      --only '^mc$|^first hit$' --table results/batch_sizes.csv
    python benchmarks/estimators.py --draw docs/images/batch_sizes.png --table results/batch_sizes.csv --by worlds

And what else may be made of a gradient than the usual step, all of one length in the KL: with more damping, within the
output layer alone, along the gradient itself, or, from half of the worlds, only where the other half agrees:

    python benchmarks/estimators.py RUN --worlds 12800 --engine gpu --subsets 100 400 1600 --only '^mc$|^first hit$' \\
      --ways natural 'damping 0.3' 'damping 3' 'output layer' gradient half 'half, accepted' --table results/ways.csv

What critics of state and action make of the samples of earlier policies, those of the run's checkpoints --past:

    python benchmarks/estimators.py RUN --worlds 2400 --past 2 5 8 11 14 --past-worlds 400 --subsets 100 \\
      --only '^mc$|^first hit|^Q' --table results/off_policy.csv
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from action_critics import FromThePast, seen_by
from estimator_tables import PICTURES, keep
from torch import Tensor

from sbtrpo.algorithms.base import Batch
from sbtrpo.algorithms.trust_region import TrustRegion, TrustRegionSettings, conjugate_gradient, solve, to_boundary
from sbtrpo.config.file import read_config
from sbtrpo.learning.advantages import baseline_features, fit_baseline, gae, normalise, paths, returns_to_go
from sbtrpo.learning.off_policy import seen
from sbtrpo.learning.rollout import Rollout
from sbtrpo.learning.trainer import Trainer
from sbtrpo.nets.action_critics import ACTIONS
from sbtrpo.nets.network import flatten
from sbtrpo.nets.policy import Policy
from sbtrpo.runs.evaluation import load_policy

Estimator = Callable[[Rollout, float], Tensor]
Critic = Callable[[Rollout], Tensor]
Way = Callable[[TrustRegion, Tensor], Tensor]
DECAYS = (1.0, 0.99, 0.97, 0.9, 0.5, 0.0)
"""Lambdas of the critics' advantages."""
SETTINGS = TrustRegionSettings(cg_iterations=50, cg_damping=0.02, cg_tolerance=0.01, cg_epsilon=0.0)


def ended(rollout: Rollout) -> Tensor:
    return rollout.terminated | rollout.truncated


def to_go(signal: Tensor, rollout: Rollout, gamma: float) -> Tensor:
    return returns_to_go(signal.double(), ended(rollout), gamma)


def to_go_of_cost(rollout: Rollout, gamma: float) -> Tensor:
    return to_go(rollout.cost, rollout, gamma)


def less_baseline(estimate: Tensor, rollout: Rollout) -> Tensor:
    """Minus a linear baseline, fitted on the other half of these worlds, so that nobody judges himself."""
    features = baseline_features(rollout.obs, rollout.time).double()
    half, left = estimate.shape[1] // 2, estimate.clone()
    for own, other in ((slice(0, half), slice(half, None)), (slice(half, None), slice(0, half))):
        weights = fit_baseline(features[:, other].flatten(0, 1), estimate[:, other].flatten()[:, None], 1e-3)
        left[:, own] -= (features[:, own] @ weights)[..., 0]
    return left


def first_hit(rollout: Rollout, gamma: float) -> Tensor:
    """γ to the power of the steps until the first cost."""
    x, _, over = paths(rollout.signals.double(), rollout.terminated, rollout.truncated, first_hit=True)
    return returns_to_go(x[1], over[1], gamma)


ESTIMATORS: dict[str, Estimator] = {
    "mc": to_go_of_cost,
    "mc, linear": lambda r, gamma: less_baseline(to_go(r.cost, r, gamma), r),
    "gamma 0.995": lambda r, gamma: to_go(r.cost, r, 0.995),
    "gamma 0.995, linear": lambda r, gamma: less_baseline(to_go(r.cost, r, 0.995), r),
    "gamma 0.95, linear": lambda r, gamma: less_baseline(to_go(r.cost, r, 0.95), r),
    "first hit": first_hit,
    "first hit, linear": lambda r, gamma: less_baseline(first_hit(r, gamma), r),
    "first hit, 0.995, linear": lambda r, gamma: less_baseline(first_hit(r, 0.995), r),
    "log": lambda r, gamma: torch.log1p(to_go(r.cost, r, gamma)),
    "log, linear": lambda r, gamma: less_baseline(torch.log1p(to_go(r.cost, r, gamma)), r),
    "root, linear": lambda r, gamma: less_baseline(torch.sqrt(to_go(r.cost, r, gamma)), r),
    "beginnings, linear": lambda r, gamma: less_baseline(to_go(_beginnings(r), r, gamma), r),
}


def _beginnings(rollout: Rollout) -> Tensor:
    """1 where a stay among costs begins."""
    costly = rollout.cost > 0
    before = torch.cat([torch.zeros_like(costly[:1]), costly[:-1] & ~ended(rollout)[:-1]])
    return (costly & ~before).double()


def fitted(inputs: Tensor, targets: Tensor, updates: int) -> Callable[[Tensor], Tensor]:
    """A network that tells the targets (n,) from the inputs (n, k)."""
    scale = targets.std().clamp(min=1e-6)
    sizes = [inputs.shape[1], 128, 128]
    layers = [part for a, b in itertools.pairwise(sizes) for part in (torch.nn.Linear(a, b), torch.nn.Tanh())]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(sizes[-1], 1)).to(inputs.device)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, updates)
    with torch.enable_grad():
        for _ in range(updates):
            some = torch.randint(len(inputs), (min(16_384, len(inputs)),), device=inputs.device)
            loss = (network(inputs[some])[:, 0] - targets[some] / scale).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return lambda x: (network(x)[..., 0] * scale).double()


def learn_critic(past: Rollout, estimate: Tensor, updates: int) -> Critic:
    """A network that tells what is to come from what is observed and the time that has passed."""
    network = fitted(seen(past.obs, past.time).flatten(0, 1), estimate.float().flatten(), updates)
    return lambda rollout: network(seen(rollout.obs, rollout.time))


def learn_advantage(past: Rollout, estimate: Tensor, updates: int, policy: Policy) -> Estimator:
    """A network that tells an action's advantage from observation, time and action, less its mean over actions."""
    together = torch.cat([seen(past.obs, past.time), past.action.float()], -1)
    network = fitted(together.flatten(0, 1), estimate.float().flatten(), updates)

    def learnt(rollout: Rollout, gamma: float) -> Tensor:
        observed, mean, deviation = seen(rollout.obs, rollout.time), policy.mean(rollout.obs), policy.log_std.exp()
        others = [mean + deviation * torch.randn_like(mean) for _ in range(ACTIONS)]
        own, *rest = (network(torch.cat([observed, action.float()], -1)) for action in (rollout.action, *others))
        return own - torch.stack(rest).mean(dim=0)

    return learnt


def with_critic(critic: Critic, decay: float, first_hit: bool = False) -> Estimator:
    """Generalised advantages, episodes that end where their time does having nothing to come."""

    def estimate(rollout: Rollout, gamma: float) -> Tensor:
        value = critic(rollout)
        x, _, over = paths(rollout.signals.double(), rollout.terminated, rollout.truncated, first_hit)
        return gae(x[1], value, torch.cat([value[1:], value[-1:]]), over[1], over[1], gamma, decay)

    return estimate


def picked(rollout: Rollout, worlds: Tensor) -> Rollout:
    """These worlds alone; without what estimators do not look at."""
    named = ("obs", "action", "log_prob", "terminated", "truncated", "time")
    parts = {name: getattr(rollout, name)[:, worlds] for name in named}
    parts |= dict.fromkeys(("last_obs", "final_obs", "final_obs_raw"), rollout.last_obs[:0])
    return Rollout(signals=rollout.signals[:, :, worlds], **parts)


def region_of(trainer: Trainer, rollout: Rollout, estimates: Tensor) -> TrustRegion:
    flat = rollout.obs.flatten(0, 1), rollout.action.flatten(0, 1), rollout.log_prob.flatten()
    batch = Batch(*flat, normalise(estimates.to(rollout.obs.dtype)), worlds=rollout.obs.shape[1])
    return TrustRegion(trainer.policy, batch, "sum_over_dims", SETTINGS.cg_damping)


def natural(region: TrustRegion, gradient: Tensor, damping: float = SETTINGS.cg_damping) -> Tensor:
    """Where the cost falls most for its KL: (P,)."""
    more = None if damping == region.damping else lambda vectors: (damping - region.damping) * vectors
    return solve(region, -gradient[None], SETTINGS, more).x[0]


def of_output_layer(region: TrustRegion, gradient: Tensor) -> Tensor:
    """The same among steps that leave all but the network's last layer."""
    *others, weight, bias = region.policy.params
    own = flatten([*map(torch.zeros_like, others), torch.ones_like(weight), torch.ones_like(bias)])
    limits = SETTINGS.cg_iterations, SETTINGS.cg_tolerance
    return conjugate_gradient(lambda v: own * region.fisher(own * v), -(own * gradient)[None], *limits).x[0]


def of_half(region: TrustRegion, gradient: Tensor, accepted: bool = False) -> Tensor:
    """From every second world; none where it is to be accepted, and the others say that cost would rise."""
    own, other = region.gradients_of_halves()[:, 1]
    step = natural(region, own)
    return step * (other @ step < 0) if accepted else step


WAYS: dict[str, Way] = {
    "natural": natural,
    "damping 0.3": partial(natural, damping=0.3),
    "damping 3": partial(natural, damping=3.0),
    "damping 30": partial(natural, damping=30.0),
    "output layer": of_output_layer,
    "gradient": lambda region, gradient: -gradient,
    "half": of_half,
    "half, accepted": partial(of_half, accepted=True),
}
"""From the cost's gradient to the direction of a step; all are as long as the trust region lets them be."""

KINDS: dict[str, tuple[Estimator, bool]] = {"critic": (to_go_of_cost, False), "first hit, critic": (first_hit, True)}
"""Of critics: what they learn, and whether it is of first hits."""


OFF_POLICY = {"Q, off policy": 0.0, "Q, off policy, pessimistic": 1.0}
"""Estimators by critics of state and action, and how many of their deviations count as cost."""


def _by_action(critics: FromThePast, pessimism: float, rollout: Rollout, gamma: float) -> Tensor:
    return critics.advantage(rollout, pessimism)


def names_of(kind: str) -> list[str]:
    """The estimators with such a critic."""
    return [*(f"{kind}, lambda {decay}" for decay in DECAYS), f"{kind}, learnt"]


def learnt_kinds(only: str) -> list[str]:
    """The critics that the estimators of these names need."""
    return [kind for kind in KINDS if any(re.search(only, name) for name in names_of(kind))]


def asked(only: str) -> list[str]:
    """The estimators of these names."""
    known = itertools.chain(ESTIMATORS, OFF_POLICY, *map(names_of, KINDS))
    return [name for name in known if re.search(only, name)]


def makers_of(args: Any) -> int:
    """How many worlds make steps."""
    return int(args.worlds // (4 if learnt_kinds(args.only) else 2))


def judge(trainer: Trainer, rollout: Rollout, past: Sequence[Rollout], args: Any) -> Iterator[dict[str, Any]]:
    """The rows of the table."""
    gamma, count = trainer.config.gamma, rollout.obs.shape[1]
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0)).to(rollout.obs.device)
    makers, others = order[: makers_of(args)], picked(rollout, order[count // 2 :])
    estimators, known = dict(ESTIMATORS), picked(rollout, order[len(makers) : count // 2])
    for kind in learnt_kinds(args.only):
        target, hits = KINDS[kind]
        critic = learn_critic(known, target(known, gamma), args.updates)
        estimators |= {f"{kind}, lambda {decay}": with_critic(critic, decay, hits) for decay in DECAYS}
        if re.search(args.only, name := f"{kind}, learnt"):
            advantage = with_critic(critic, 0.9, hits)(known, gamma)
            estimators[name] = learn_advantage(known, advantage, args.updates, trainer.policy)
        explained = 1 - (target(others, gamma) - critic(others)).var() / target(others, gamma).var()
        yield {f"explained by {kind}": round(float(explained), 3)}
    if past and any(re.search(args.only, name) for name in OFF_POLICY):
        critics = FromThePast(past, trainer.policy, gamma, args.updates)
        for name, pessimism in OFF_POLICY.items():
            estimators[name] = partial(_by_action, critics, pessimism)
    fair = [less_baseline(to_go(signal, others, gamma), others) for signal in others.signals]
    fair.append(less_baseline(first_hit(others, gamma), others))
    region = region_of(trainer, others, torch.stack(fair))
    for row, estimate in zip(region.batch.advantages, fair, strict=True):
        row *= (estimate.std() / row.std()).nan_to_num()  # each in its own units; where nothing violates, all are 0
    g_r, g_c, g_h = region.gradients()
    estimators = {name: estimator for name, estimator in estimators.items() if re.search(args.only, name)}
    for size in args.subsets:
        subsets = [makers[k : k + size] for k in range(0, len(makers) - size + 1, size)][: args.repeats]
        for name, estimator in estimators.items() if subsets else ():
            found: dict[str, list[list[float]]] = {way: [] for way in args.ways}
            for worlds in subsets:
                own = picked(rollout, worlds)
                estimate = estimator(own, gamma)
                mine = region_of(trainer, own, torch.stack([to_go(own.reward, own, gamma), estimate]))
                gradient = mine.gradients()[1]
                for way, rows in found.items():
                    direction = WAYS[way](mine, gradient)
                    curvature = float(direction @ mine.fisher(direction[None])[0])
                    step = direction * (to_boundary(curvature, args.kl) if curvature > 0 else 0.0)
                    promised, holds = float(gradient @ step), float(g_c @ step)
                    share = holds / promised if promised else math.nan
                    rows.append([holds, float(g_h @ step), float(g_r @ step), share, divergence(region, step)])
            for way, rows in found.items():
                yield summary(name if way == "natural" else f"{name}, {way}", size, rows)


def divergence(region: TrustRegion, step: Tensor) -> float:
    """How far a step moves the policy where the region's worlds are, damping left out."""
    return 0.5 * float(step @ region.fisher(step[None])[0] - region.damping * (step @ step))


def summary(name: str, worlds: int, found: list[list[float]]) -> dict[str, Any]:
    """A row of the table: means over steps from so many worlds."""
    cost, hit, reward, share, kl = torch.tensor(found, dtype=torch.float64).T
    error, hit_error = (float(x.std() / math.sqrt(len(x))) if len(x) > 1 else math.nan for x in (cost, hit))
    return {
        "estimator": name,
        "worlds": worlds,
        "subsets": len(found),
        "cost": round(float(cost.mean()), 9),
        "error": round(error, 9),
        "hit": round(float(hit.mean()), 9),
        "hit_error": round(hit_error, 9),
        "reward": round(float(reward.mean()), 9),
        "share": round(float(share.nanmean()), 3) if name.startswith("mc") and share.isfinite().any() else None,
        "kl": round(float(kl.mean()), 6),
    }


def played(args: Any, which: Any, worlds: int, seed: int) -> tuple[Trainer, Rollout]:
    """What the policy of a checkpoint gives in so many worlds."""
    config = read_config(args.run / "config.toml").replace(
        num_envs=worlds, steps_per_epoch=worlds * args.steps, total_steps=worlds * args.steps,
        engine=args.engine, device="auto", seed=seed, end_at_violation=False,
    )  # fmt: skip
    trainer = Trainer(config)
    trainer.policy.load_state_dict(load_policy(args.run, which).state_dict())
    trainer.policy.normaliser.learns = False
    trainer.collector.start()  # anew: what worlds showed before is in other units
    with torch.no_grad():
        return trainer, trainer.collector.collect(args.steps)


def rank(args: Any) -> None:
    """Play, judge, print."""
    trainer, rollout = played(args, args.which, args.worlds, args.seed)
    config, past = trainer.config, list[Rollout]()
    for k, epoch in enumerate(args.past):
        other, theirs = played(args, epoch, args.past_worlds, args.seed + 1 + k)
        past.append(seen_by(trainer.policy, theirs, other.policy))
    with torch.no_grad():
        costs = rollout.episodes.get("cost", np.zeros(0))
        returns = rollout.episodes.get("return", costs)
        about = {
            "task": config.task, "episodes": len(costs), "reward": round(float(returns.mean()), 3),
            "cost": round(float(costs.mean()), 3), "safety_probability": round(float((costs == 0).mean()), 3),
        }  # fmt: skip
        for row in itertools.chain([about], judge(trainer, rollout, past, args)):
            if args.table and "estimator" in row:
                keep({"task": config.task, **row}, args.table)
            print(json.dumps(row) if args.json else "  ".join(f"{k} {v}" for k, v in row.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", help="whose policy plays")
    parser.add_argument("--which", default="last", help="its checkpoint: last, best, or an epoch's number")
    parser.add_argument("--worlds", type=int, default=1600)
    parser.add_argument("--steps", type=int, default=1000, help="of each world")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--past", type=int, nargs="*", default=[], help="checkpoints whose samples teach Q")
    parser.add_argument("--past-worlds", type=int, default=400, help="of each of them")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--subsets", type=int, nargs="+", default=[20, 100, 400], help="worlds that make a step")
    parser.add_argument("--repeats", type=int, default=16, help="steps of a kind, at most")
    parser.add_argument("--updates", type=int, default=3000, help="of the critic")
    parser.add_argument("--only", default="", help="a pattern that names of estimators have")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["natural"], help="from a gradient to a step")
    parser.add_argument("--kl", type=float, default=0.01)
    parser.add_argument("--table", type=Path, help="a CSV file for the rows")
    parser.add_argument("--draw", type=Path, help="make a picture of the table instead")
    parser.add_argument("--by", choices=PICTURES, default="estimator", help="what the picture tells apart")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    args = parser.parse_args()
    if args.draw and args.table:
        PICTURES[args.by](args.table, args.draw)
    elif args.draw or args.run is None:
        parser.error("name a run, or a --table to --draw")
    elif not (args.run / "config.toml").is_file():
        parser.error(f"{args.run} is not the folder of a run: it holds no config.toml")
    elif not asked(args.only):
        parser.error(f"no estimator has a name like {args.only}")
    elif not args.past and all(re.search("off policy", name) for name in asked(args.only)):
        parser.error("estimators off policy learn from samples of earlier policies: name their checkpoints with --past")
    elif max(args.subsets) > makers_of(args):
        parser.error(f"of {args.worlds} worlds {makers_of(args)} make steps: more --worlds, or smaller --subsets")
    else:
        args.which = int(args.which) if args.which.isdigit() else args.which
        try:
            for which in (args.which, *args.past):  # before an hour of play, not after it
                load_policy(args.run, which)
        except FileNotFoundError as error:
            parser.error(str(error))
        rank(args)


if __name__ == "__main__":
    main()
