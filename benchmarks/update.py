"""Speed of the learner at the paper's sizes, against what a textbook implementation does, as ratios within one run.

    python benchmarks/update.py [--json] [--cg-iterations 16] [--repeats 7] [--threads N]
    python benchmarks/update.py --methods [--json] [--epochs 3]

The first form times these on the same random data (20,000 x 60 observations, 2 actions, 64-64), one after the other in
every repeat, and compares the medians:

- our SB-TRPO update with a fixed number of CG iterations, and the same update as textbooks write it: for each Fisher
  product a graph of the KL, a gradient with `create_graph` and a second backward, one CG solve after the other;
- our update with the default tolerance;
- one pass of fitting both critics in minibatches of 128, and the same with two networks, two optimisers and a
  `DataLoader` over single samples;
- one pass of PPO-Lag's update in minibatches of 64, policy and both critics, and the same with a `DataLoader`.

The second form trains every method on Point Goal at its own settings for some epochs, in turns (SB-TRPO also with the
50 iterations of conjugate gradients that the paper runs), and gives the mean
seconds of an update (advantages, multipliers, policy and critics), its ratio to SB-TRPO's in the same run, and the
share of an update that goes into computing both gradients and the report where the method itself does not need them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from sbtrpo.algorithms import make_method
from sbtrpo.algorithms.base import Batch, report
from sbtrpo.algorithms.focops import FOCOPS
from sbtrpo.algorithms.ppo_lag import PPOLagSettings
from sbtrpo.algorithms.sb_trpo import SBTRPOSettings, safety_share
from sbtrpo.algorithms.trust_region import TrustRegion
from sbtrpo.config import TrainConfig, catalogue
from sbtrpo.learning.trainer import Trainer
from sbtrpo.nets.critics import Critics
from sbtrpo.nets.network import flatten
from sbtrpo.nets.policy import Policy

SAMPLES, OBSERVATION, ACTIONS = 20_000, 60, 2
CRITIC_BATCH, L2, MAX_NORM = 128, 1e-3, 40.0


def random_batch(policy: Policy, generator: torch.Generator) -> Batch:
    """Observations, actions of the policy, and advantages that depend on them a little."""
    obs = torch.randn((SAMPLES, OBSERVATION), generator=generator)
    with torch.no_grad():
        action = policy.mean(obs) + torch.randn((SAMPLES, ACTIONS), generator=generator)
        log_prob = policy.log_prob(obs, action)
    noise = torch.randn((2, SAMPLES), generator=generator)
    reward = noise[0] + 0.3 * action[:, 0] * obs[:, 0]
    cost = ((noise[1] + action[:, 1] * obs[:, 1]) > 2.5).float()
    advantages = torch.stack([(reward - reward.mean()) / reward.std(), cost - cost.mean()])
    return Batch(obs, action, log_prob, advantages)


# ---- the textbook ------------------------------------------------------------------------------------------------


class Actor(nn.Module):
    """A Gaussian policy as a module."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.log_std = nn.Parameter(policy.log_std.clone())
        self.network = nn.Sequential(
            nn.Linear(OBSERVATION, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, ACTIONS)
        )
        with torch.no_grad():
            for parameter, values in zip(self.network.parameters(), policy.params[1:], strict=True):
                parameter.copy_(values)

    def forward(self, obs: Tensor) -> torch.distributions.Normal:
        """The distribution of each action dimension."""
        return torch.distributions.Normal(self.network(obs), torch.exp(self.log_std))


def flat_gradient(loss: Tensor, actor: Actor, create_graph: bool = False) -> Tensor:
    gradients = torch.autograd.grad(loss, list(actor.parameters()), create_graph=create_graph)
    return torch.cat([gradient.reshape(-1) for gradient in gradients])


def textbook_cg(product: Callable[[Tensor], Tensor], b: Tensor, iterations: int) -> Tensor:
    x, r, p = torch.zeros_like(b), b.clone(), b.clone()
    rr = r @ r
    for _ in range(iterations):
        z = product(p)
        alpha = rr / (p @ z + 1e-12)
        x += alpha * p
        r -= alpha * z
        new_rr = r @ r
        p = r + new_rr / rr * p
        rr = new_rr
    return x


def textbook_update(actor: Actor, batch: Batch, settings: SBTRPOSettings) -> Tensor:
    """SB-TRPO's update with autograd throughout; parameters of the accepted step."""
    with torch.no_grad():
        old = actor(batch.obs)

    def surrogate(advantage: Tensor) -> Tensor:
        ratio = torch.exp(actor(batch.obs).log_prob(batch.action).sum(-1) - batch.log_prob)
        return (ratio * advantage).mean()

    def product(vector: Tensor) -> Tensor:
        kl = torch.distributions.kl_divergence(old, actor(batch.obs)).mean()
        gradient = flat_gradient(kl, actor, create_graph=True)
        return flat_gradient(gradient @ vector, actor) + settings.cg_damping * vector

    steps, gradients = [], []
    for advantage in batch.advantages:
        g = flat_gradient(surrogate(advantage), actor)
        x = textbook_cg(product, g, settings.cg_iterations)
        steps.append(torch.sqrt(2 * settings.target_kl / (x @ product(x) + 1e-8)) * x)
        gradients.append(g)
    delta_r, delta_c, g_c = steps[0], -steps[1], gradients[1]
    mu = safety_share(float(g_c @ delta_r), float(g_c @ delta_c), settings.share)
    delta = (1 - mu) * delta_r + mu * delta_c

    theta = nn.utils.parameters_to_vector(actor.parameters()).detach().clone()
    found, eta = theta, settings.line_search_first
    with torch.no_grad():
        old_cost = surrogate(batch.advantage_c)
        for _ in range(settings.line_search_tries):
            nn.utils.vector_to_parameters(theta + eta * delta, actor.parameters())
            kl = torch.distributions.kl_divergence(old, actor(batch.obs)).mean()
            if kl <= settings.target_kl and surrogate(batch.advantage_c) <= old_cost:
                found = theta + eta * delta
                break
            eta *= settings.line_search_fraction
        nn.utils.vector_to_parameters(theta, actor.parameters())
    return found


class DataLoaderCritics:
    """Both critics as PyTorch tutorials fit them."""

    def __init__(self, obs: Tensor, targets: Tensor) -> None:
        self.networks = [
            nn.Sequential(nn.Linear(OBSERVATION, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
            for _ in targets
        ]
        self.optimisers = [torch.optim.Adam(network.parameters(), lr=1e-3) for network in self.networks]
        self.parameters = [parameter for network in self.networks for parameter in network.parameters()]
        self.loader = DataLoader(TensorDataset(obs, *targets), batch_size=CRITIC_BATCH, shuffle=True)

    def fit(self) -> None:
        """One pass over the data."""
        for obs, *targets in self.loader:
            loss = torch.zeros(())
            for network, optimiser, target in zip(self.networks, self.optimisers, targets, strict=True):
                optimiser.zero_grad()
                loss = loss + nn.functional.mse_loss(network(obs).squeeze(-1), target)
                for parameter in network.parameters():
                    loss = loss + L2 * parameter.pow(2).sum()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(self.parameters, MAX_NORM)
            for optimiser in self.optimisers:
                optimiser.step()


class DataLoaderPPOLag:
    """PPO-Lag as its public implementations run it: single samples from a `DataLoader`, three optimisers, one loss."""

    def __init__(self, policy: Policy, batch: Batch, settings: PPOLagSettings) -> None:
        assert batch.targets is not None
        self.actor, self.settings = Actor(policy), settings
        self.critics = DataLoaderCritics(batch.obs, batch.targets)
        columns = (batch.obs, batch.action, batch.log_prob, batch.advantage_r, batch.advantage_c, *batch.targets)
        self.loader = DataLoader(TensorDataset(*columns), batch_size=settings.policy_batch, shuffle=True)
        self.optimisers = [torch.optim.Adam(self.actor.parameters(), lr=3e-4), *self.critics.optimisers]
        self.parameters = [*self.actor.parameters(), *self.critics.parameters]

    def fit(self) -> None:
        """One pass over the data."""
        clip, multiplier = self.settings.clip, self.settings.multiplier_init
        for obs, action, log_prob, advantage_r, advantage_c, *targets in self.loader:
            for optimiser in self.optimisers:
                optimiser.zero_grad()
            ratio = torch.exp(self.actor(obs).log_prob(action).sum(-1) - log_prob)
            advantage = (advantage_r - multiplier * advantage_c) / (1 + multiplier)
            loss = -torch.min(ratio * advantage, torch.clamp(ratio, 1 - clip, 1 + clip) * advantage).mean()
            for network, target in zip(self.critics.networks, targets, strict=True):
                loss = loss + nn.functional.mse_loss(network(obs).squeeze(-1), target)
                for parameter in network.parameters():
                    loss = loss + L2 * parameter.pow(2).sum()
            loss.backward()
            nn.utils.clip_grad_norm_(self.parameters, MAX_NORM)
            for optimiser in self.optimisers:
                optimiser.step()


# ---- measuring ---------------------------------------------------------------------------------------------------


def medians(contestants: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Seconds of each, taken in turns so that a slow moment of the machine meets all of them alike."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repeats + 1):
        for name, call in contestants.items():
            started = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(taken[1:]) for name, taken in seconds.items()}  # the first one warms up


def measure(cg_iterations: int, repeats: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)
    default = TrainConfig()
    config = default.replace(cg_iterations=cg_iterations, cg_tolerance=0.0)
    settings = config.method
    assert isinstance(settings, SBTRPOSettings)
    policy = Policy(OBSERVATION, ACTIONS, (64, 64), generator)
    start = flatten(policy.params)
    batch = dataclasses.replace(random_batch(policy, generator), targets=torch.randn((2, SAMPLES), generator=generator))
    assert batch.targets is not None
    actor = Actor(policy)

    def update(config: TrainConfig, critics: Critics | None = None) -> Tensor:
        """One update from the start."""
        policy.set(start)
        make_method(policy, critics, config, generator).update(batch, 10.0, 0.0)
        return flatten(policy.params)

    ours, textbook = update(config), textbook_update(actor, batch, settings)
    gap = float((ours - textbook).norm() / (textbook - start).norm())
    if not gap < 0.01:
        raise SystemExit(f"both updates should agree, but differ by {gap:.2%} of the step: the times mean nothing")

    policy.set(start)
    ppo_lag = TrainConfig(algo="ppo_lag", policy_passes=1, target_kl=1e9)
    assert isinstance(ppo_lag.method, PPOLagSettings)
    critics = Critics(2, OBSERVATION, (64, 64), 1e-3, generator)
    loaded, loaded_ppo = DataLoaderCritics(batch.obs, batch.targets), DataLoaderPPOLag(policy, batch, ppo_lag.method)
    targets = batch.targets
    found = medians(
        {
            "update_s": lambda: update(config),
            "textbook_update_s": lambda: textbook_update(actor, batch, settings),
            "default_update_s": lambda: update(default),
            "critic_pass_s": lambda: critics.fit(batch.obs, targets, CRITIC_BATCH, 1, L2, MAX_NORM, generator),
            "dataloader_pass_s": loaded.fit,
            "ppo_lag_pass_s": lambda: update(ppo_lag, critics),
            "dataloader_ppo_lag_pass_s": loaded_ppo.fit,
        },
        repeats,
    )
    return {
        **found,
        "update_ratio": found["textbook_update_s"] / found["update_s"],
        "critic_ratio": found["dataloader_pass_s"] / found["critic_pass_s"],
        "ppo_lag_ratio": found["dataloader_ppo_lag_pass_s"] / found["ppo_lag_pass_s"],
        "cg_iterations": cg_iterations,
        "threads": torch.get_num_threads(),
    }


def logging_seconds(family: str) -> float:
    """Seconds that an update spends on gradients and numbers for the report alone, on random data of Point Goal's size.

    A trust-region method needs its region and one gradient anyway, a first-order method its network's outputs before
    and after.
    """
    generator = torch.Generator().manual_seed(0)
    policy = Policy(OBSERVATION, ACTIONS, (64, 64), generator)
    batch = random_batch(policy, generator)
    if family == "first order":
        method = FOCOPS(policy, None, TrainConfig(algo="focops"), generator)
        change = np.full_like(method.actor.flat(), 1e-3)

        def numbers() -> None:
            before = method.start(batch)
            report(before.trial, before.trial, before.gradients, change)

        def outputs() -> None:
            method.actor.mean(batch.obs.numpy())

        found = medians({"numbers": numbers, "outputs": outputs}, 7)
        return found["numbers"] - found["outputs"]
    region = TrustRegion(policy, batch, "sum_over_dims", 0.0)
    ((_, network),) = region.chunks
    z = (batch.action - network.output) * batch.advantage_r[:, None] / SAMPLES
    step = torch.full_like(region.theta, 1e-3)

    def both() -> None:
        report(region.old, region.old, region.gradients(), step)

    found = medians({"both": both, "one": lambda: network.pullback(z.T[:, None, :].contiguous())}, 7)
    return found["both"] - found["one"]


def compare_methods(epochs: int, task: str = "SafetyPointGoal2-v0") -> list[dict[str, object]]:
    """Every method in training, in turns: seconds of an update."""
    configs = {name: TrainConfig(task=task, algo=name) for name in catalogue.BUILT_IN}
    configs["sb-trpo, 50 CG iterations"] = TrainConfig(task=task, cg_tolerance=0.0, cg_epsilon=1e-6)
    trainers = {name: Trainer(config) for name, config in configs.items()}
    seconds: dict[str, list[float]] = {name: [] for name in configs}
    passes: dict[str, list[float | None]] = {name: [] for name in configs}
    for _ in range(epochs + 1):
        for name, trainer in trainers.items():
            epoch = trainer.run_epoch()
            seconds[name].append(epoch.timing["update_seconds"])
            passes[name].append(epoch.row.get("passes"))
    unit = statistics.mean(seconds["sb-trpo"][1:])  # the first one warms up
    logging = {family: logging_seconds(family) for family in ("trust region", "first order")}
    rows = []
    for name, taken in seconds.items():
        mean, counted = statistics.mean(taken[1:]), passes[name][1:]
        rows.append(
            {
                "method": name,
                "update_s": round(mean, 3),
                "update_std_s": round(statistics.pstdev(taken[1:]), 3),
                "ratio": round(mean / unit, 2),
                "passes": None if None in counted else round(statistics.mean(filter(None, counted)), 1),
                "logging_share": round(logging[catalogue.method(configs[name].algo).family] / mean, 4),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")
    parser.add_argument("--methods", action="store_true", help="every method's update on Point Goal")
    parser.add_argument("--epochs", type=int, default=3, help="with --methods: epochs that count, after one to warm up")
    parser.add_argument("--cg-iterations", type=int, default=16, help="of both updates (the paper's cap is 50)")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=0, help="of PyTorch; 0 leaves its choice")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.methods:
        rows = compare_methods(arguments.epochs)
        for row in rows:
            if arguments.json:
                print(json.dumps(row))
            else:
                print(
                    f"{row['method']:<28}{row['update_s']:>9.3f} s ± {row['update_std_s']:.3f}{row['ratio']:>8.2f}x"
                    f"{row['passes']:>7} passes{100 * float(str(row['logging_share'])):>7.1f} % for the report"
                )
        return
    found = measure(arguments.cg_iterations, arguments.repeats)
    if arguments.json:
        print(json.dumps({name: round(value, 5) for name, value in found.items()}))
        return
    lines = (
        (f"update, {arguments.cg_iterations} CG iterations", "update_s", "textbook_update_s", "update_ratio"),
        ("update, default tolerance", "default_update_s", None, None),
        ("critics, one pass", "critic_pass_s", "dataloader_pass_s", "critic_ratio"),
        ("PPO-Lag, one pass", "ppo_lag_pass_s", "dataloader_ppo_lag_pass_s", "ppo_lag_ratio"),
    )
    print(f"{'':<30}{'ours':>10}{'textbook':>12}{'ratio':>9}   ({found['threads']:.0f} threads)")
    for label, ours, other, ratio in lines:
        beside = f"{1e3 * found[other]:>9.1f} ms{found[ratio]:>8.1f}x" if other and ratio else ""
        print(f"{label:<30}{1e3 * found[ours]:>7.1f} ms{beside}")


if __name__ == "__main__":
    main()
