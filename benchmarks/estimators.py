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

    python benchmarks/estimators.py RUN --worlds 2400 --past 3 6 9 12 15 --past-worlds 400 --subsets 100 \\
      --only '^mc$|^first hit|^Q' --table results/off_policy.csv
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sbtrpo.algorithms.base import Batch
from sbtrpo.algorithms.trust_region import TrustRegion, TrustRegionSettings, conjugate_gradient, solve, to_boundary
from sbtrpo.config.file import read_config
from sbtrpo.learning.advantages import baseline_features, fit_baseline, gae, normalise, paths, returns_to_go
from sbtrpo.learning.rollout import Rollout
from sbtrpo.learning.trainer import Trainer
from sbtrpo.nets.network import flatten
from sbtrpo.nets.policy import Policy
from sbtrpo.report import paper
from sbtrpo.runs.evaluation import load_policy

Estimator = Callable[[Rollout, float], Tensor]
Critic = Callable[[Rollout], Tensor]
Way = Callable[[TrustRegion, Tensor], Tensor]
DECAYS = (1.0, 0.99, 0.97, 0.9, 0.5, 0.0)
"""Lambdas of the critics' advantages."""
ACTIONS = 8
"""Over so many of the policy's the mean of a learnt advantage is taken."""
HEADS = 5
"""Critics of state and action."""
FEW_STEPS = 10
"""Of a return before such a critic has its say."""
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


def episode_hit(rollout: Rollout, gamma: float) -> Tensor:
    """The same until the episode's first cost; 0 after it, when nothing that follows can make the episode safe."""
    hit, over = rollout.cost > 0, ended(rollout)
    begins = torch.cat([torch.ones_like(over[:1]), over[:-1]])
    so_far = hit.long().cumsum(dim=0) - hit.long()  # before each step, over all episodes
    at_begin = torch.where(begins, so_far, 0).cummax(dim=0).values
    return torch.where(so_far > at_begin, 0.0, first_hit(rollout, gamma))


ESTIMATORS: dict[str, Estimator] = {
    "mc": to_go_of_cost,
    "mc, linear": lambda r, gamma: less_baseline(to_go(r.cost, r, gamma), r),
    "gamma 0.995": lambda r, gamma: to_go(r.cost, r, 0.995),
    "gamma 0.995, linear": lambda r, gamma: less_baseline(to_go(r.cost, r, 0.995), r),
    "gamma 0.95, linear": lambda r, gamma: less_baseline(to_go(r.cost, r, 0.95), r),
    "first hit": first_hit,
    "first hit, linear": lambda r, gamma: less_baseline(first_hit(r, gamma), r),
    "episode's first hit": episode_hit,
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
    network = fitted(_seen(past).flatten(0, 1), estimate.float().flatten(), updates)
    return lambda rollout: network(_seen(rollout))


def learn_advantage(past: Rollout, estimate: Tensor, updates: int, policy: Policy) -> Estimator:
    """A network that tells an action's advantage from observation, time and action, less its mean over actions."""
    together = torch.cat([_seen(past), past.action.float()], -1)
    network = fitted(together.flatten(0, 1), estimate.float().flatten(), updates)

    def learnt(rollout: Rollout, gamma: float) -> Tensor:
        seen, mean, deviation = _seen(rollout), policy.mean(rollout.obs), policy.log_std.exp()
        others = [mean + deviation * torch.randn_like(mean) for _ in range(ACTIONS)]
        own, *rest = (network(torch.cat([seen, action.float()], -1)) for action in (rollout.action, *others))
        return own - torch.stack(rest).mean(dim=0)

    return learnt


class ActionCritics:
    """Critics of state and action, Q(s, a): each discounts the next hit, from samples of earlier policies.

    Targets are returns of a few steps, as the earlier policies went on, uncorrected, and, where these pass without a
    hit, what slowly following copies say of the state after them and of an action of the policy there. Every critic
    has minibatches of its own.
    """

    def __init__(self, past: Sequence[Rollout], policy: Policy, gamma: float, updates: int) -> None:
        self.policy, device = policy, policy.log_std.device
        sizes = [past[0].obs.shape[-1] + 1 + past[0].action.shape[-1], 128, 128, 1]
        self._weights = [
            torch.empty(HEADS, a + 1, b, device=device).uniform_(-1, 1).div_(math.sqrt(a)).requires_grad_()
            for a, b in itertools.pairwise(sizes)
        ]
        follower = [weight.detach().clone() for weight in self._weights]
        samples = [_few_steps(rollout, gamma) for rollout in past]
        seen, action, gains, after, goes_on = (torch.cat(parts) for parts in zip(*samples, strict=True))
        optimiser = torch.optim.Adam(self._weights, lr=1e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, updates)
        for _ in range(updates):
            some = torch.randint(len(seen), (HEADS, 4_096), device=device)
            with torch.no_grad():
                then = self._value(follower, after[some], self._act(after[some]))
                target = gains[some] + gamma**FEW_STEPS * goes_on[some] * then.clamp(0, 1)
            with torch.enable_grad():
                loss = (self._value(self._weights, seen[some], action[some]) - target).square().mean(dim=1).sum()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            schedule.step()
            for slow, fast in zip(follower, self._weights, strict=True):
                slow.lerp_(fast.detach(), 0.01)

    def _act(self, seen: Tensor) -> Tensor:
        mean = self.policy.mean(seen[..., :-1])
        return mean + self.policy.log_std.exp() * torch.randn_like(mean)

    def _value(self, weights: Sequence[Tensor], seen: Tensor, action: Tensor) -> Tensor:
        """(K, n) of each critic, from inputs (K, n, ...)."""
        x = torch.cat([seen, action], -1)
        for layer, weight in enumerate(weights):
            x = torch.tanh(x) if layer else x
            x = torch.baddbmm(weight[:, -1:], x, weight[:, :-1])
        return x[..., 0]

    def advantage(self, rollout: Rollout, pessimism: float) -> Tensor:
        """Q(s, a) less its mean over actions of the policy, Q being so many deviations above the critics' mean."""
        seen = _seen(rollout)
        flat = seen.flatten(0, 1).expand(HEADS, -1, -1)

        def q(action: Tensor) -> Tensor:
            values = self._value(self._weights, flat, action.float().flatten(0, 1).expand(HEADS, -1, -1))
            return (values.mean(dim=0) + pessimism * values.std(dim=0)).view(seen.shape[:2]).double()

        return q(rollout.action) - torch.stack([q(self._act(seen)) for _ in range(ACTIONS)]).mean(dim=0)


def _few_steps(rollout: Rollout, gamma: float) -> tuple[Tensor, ...]:
    """Samples whose next few steps are known: state, action, what these bring, the state after, whether it counts."""
    x, _, over = paths(rollout.signals.double(), rollout.terminated, rollout.truncated, first_hit=True)
    seen, steps = _seen(rollout), torch.arange(len(rollout.obs), device=rollout.obs.device)
    gains, goes_on = torch.zeros_like(x[1]), torch.ones_like(x[1])
    for k in range(min(FEW_STEPS, len(steps))):
        there = slice(k, None), slice(None, len(steps) - k)
        gains[there[1]] += gamma**k * goes_on[there[1]] * x[1][there[0]]
        goes_on[there[1]] *= ~over[1][there[0]]
    after = seen[(steps + FEW_STEPS).clamp(max=len(steps) - 1)]
    known = (steps[:, None] < len(steps) - FEW_STEPS) | (goes_on == 0)
    parts = seen, rollout.action.float(), gains.float(), after, goes_on.float()
    return tuple(part[known] for part in parts)


def _seen(rollout: Rollout) -> Tensor:
    return torch.cat([rollout.obs, rollout.time[..., None].to(rollout.obs.dtype)], -1).float()


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


def _by_action(critics: ActionCritics, pessimism: float, rollout: Rollout, gamma: float) -> Tensor:
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
        critics = ActionCritics(past, trainer.policy, gamma, args.updates)
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


def keep(row: dict[str, Any], table: Path) -> None:
    """Add a row to a CSV file, or what of it the file has columns for."""
    begins = not table.exists()
    columns = list(row) if begins else table.read_text(encoding="utf-8").partition("\n")[0].split(",")
    if not set(columns) <= set(row):
        raise SystemExit(f"{table} has other columns than these rows; name a new file")
    with table.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n", extrasaction="ignore")
        if begins:
            writer.writeheader()
        writer.writerow(row)


def read(table: Path) -> tuple[list[dict[str, str]], list[str], list[str]]:
    """The rows of a CSV file, and the tasks and estimators in it."""
    with table.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    tasks, names = (list(dict.fromkeys(row[key] for row in rows)) for key in ("task", "estimator"))
    return rows, tasks, names


def draw(table: Path, picture: Path) -> None:
    """Every task's estimators side by side: what a step of each does to the discounted cost of other episodes."""
    from matplotlib.figure import Figure

    rows, tasks, names = read(table)
    sizes = sorted({int(row["worlds"]) for row in rows})
    figure = Figure(figsize=(3.1 * len(tasks) + 1.5, 0.26 * len(names) + 1.4), layout="constrained")
    panels = figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
    for task, axes in zip(tasks, panels, strict=True):
        for size, marker in zip(sizes, "os^D", strict=False):
            own = [row for row in rows if row["task"] == task and int(row["worlds"]) == size]
            cost, error = ([float(row[key]) for row in own] for key in ("cost", "error"))
            at = [names.index(row["estimator"]) for row in own]
            axes.errorbar(cost, at, xerr=error, fmt=marker, markersize=4, label=f"{size} worlds")
        axes.axvline(0, color="0.7", linewidth=0.8)
        axes.set_title(task, fontsize=9)
        axes.set_xlabel("change of discounted cost; left is better", fontsize=8)
        axes.locator_params(axis="x", nbins=4)
        axes.tick_params(labelsize=8)
        axes.grid(axis="x", color="0.92")
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    panels[0].legend(fontsize=8, title="a step made from", title_fontsize=8, loc="upper left")
    figure.savefig(picture, dpi=110)


def draw_sizes(table: Path, picture: Path) -> None:
    """Every task's estimators by the worlds that make a step: what it does to the chance of a hit in other episodes.

    The dotted line grows with the root of the worlds, to where the best step of the task is.
    """
    from matplotlib.figure import Figure

    rows, tasks, names = read(table)
    columns = min(5, len(tasks))
    lines = -(-len(tasks) // columns)
    figure = Figure(figsize=(2.3 * columns + 0.8, 2.3 * lines + 0.6), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for panel in panels[len(tasks) :]:
        panel.set_visible(False)
    for task, axes in zip(tasks, panels, strict=False):
        found = sorted((row for row in rows if row["task"] == task), key=lambda row: int(row["worlds"]))
        for name, marker in zip(names, itertools.cycle("os^D")):
            own = [
                [float(row[key]) for key in ("worlds", "hit", "hit_error")] for row in found if row["estimator"] == name
            ]
            if own:
                worlds, hit, error = np.array(own).T
                axes.errorbar(worlds, -1e6 * hit, yerr=1e6 * error, fmt=f"{marker}-", markersize=4, label=name)
        sizes = np.array(sorted({float(row["worlds"]) for row in found}))
        best = max(-1e6 * float(row["hit"]) for row in found if float(row["worlds"]) == sizes[-1])
        axes.plot(sizes, best * np.sqrt(sizes / sizes[-1]), color="0.6", linestyle=":", label="root of worlds")
        axes.set_xscale("log")
        axes.set_yscale("log", nonpositive="clip")
        axes.set_xticks(sizes, [f"{size:,.0f}" for size in sizes], rotation=45)
        axes.minorticks_off()
        axes.set_title(paper.tasks().get(task, task), fontsize=9)
        axes.tick_params(labelsize=8)
        axes.grid(color="0.92")
    figure.supxlabel("worlds that make a step", fontsize=9)
    figure.supylabel("fall of the chance of a hit\nin other worlds, times 1,000,000", fontsize=9)
    panels[0].legend(fontsize=8)
    figure.savefig(picture, dpi=110)


PICTURES = {"estimator": draw, "worlds": draw_sizes}


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


def seen_by(policy: Policy, rollout: Rollout, acted: Policy) -> Rollout:
    """A rollout of another policy, its observations as this policy sees them."""
    mine, theirs = (
        [torch.as_tensor(x, device=rollout.obs.device) for x in (one.mean, (one.var + one.EPSILON) ** 0.5)]
        for one in (policy.normaliser, acted.normaliser)
    )
    raw = rollout.obs.double() * theirs[1] + theirs[0]
    return replace(rollout, obs=((raw - mine[0]) / mine[1]).to(rollout.obs.dtype))


def rank(args: Any) -> None:
    """Play, judge, print."""
    which = int(args.which) if args.which.isdigit() else args.which
    trainer, rollout = played(args, which, args.worlds, args.seed)
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
        rank(args)


if __name__ == "__main__":
    main()
