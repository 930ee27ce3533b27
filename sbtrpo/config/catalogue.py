"""The methods as data: names, sources, settings, quirks. `sbtrpo algorithms` and `docs/algorithms` show this table.

A method's `settings` are its own defaults for the settings of `TrainConfig` that are left open there: those of the
published code the paper ran, except where a comment says otherwise. `paper` holds what the paper's table prints where
that differs.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Any, Literal

Family = Literal["trust region", "first order"]


@dataclass(frozen=True)
class Quirk:
    """A setting whose published value a textbook would not have."""

    published: Any
    """Under fidelity "paper"."""
    corrected: Any
    """Under fidelity "corrected"."""
    what: str
    """What the published code does, and what the correction is."""


QUIRKS: dict[str, Quirk] = {
    "kl_reduction": Quirk(
        "mean_over_dims",
        "sum_over_dims",
        "The published trust regions average the KL over action dimensions, too, so that a target of δ is m·δ in truth;"
        " corrected, dimensions are summed.",
    ),
    "bootstrap_raw_observation": Quirk(
        True,
        False,
        "At a time-out the published critics judge the raw last observation; corrected, the normalised one.",
    ),
    "first_cost_zero": Quirk(
        True,
        False,
        "The published methods read a cost of 0 in their first update, whatever happened; corrected, the actual cost.",
    ),
    "cg_epsilon": Quirk(
        1e-6,
        0.0,
        "The published conjugate gradients add 1e-6 to their denominators, which hampers small gradients;"
        " corrected, 0.",
    ),
    "cpo_as_published": Quirk(
        True,
        False,
        "The published dual has a sign wrong and projects onto an empty interval: where the constraint can be met the"
        " step violates it; corrected, the closed-form optimum of CPO's problem.",
    ),
    "pcpo_plain_gradient": Quirk(
        True,
        False,
        "The published reward step runs along the plain gradient where the method has the natural one; corrected, the"
        " latter, and no division by zero.",
    ),
    "focops_broadcast": Quirk(
        True,
        False,
        "Two published shapes broadcast to a square, so that the trust region's indicator scales all samples alike;"
        " corrected, it gates each sample by itself.",
    ),
    "multiplier_max": Quirk(
        0.2,
        2.0,
        "The published code bounds CUP's multiplier by 0.2, the paper's table by 2.0.",
    ),
    "stale_critic_clip": Quirk(
        True,
        False,
        "The published gradient clipping of the actor counts the critics' gradients of the epoch before; corrected, the"
        " actor's alone.",
    ),
}
"""What fidelity "paper" and "corrected" mean, setting by setting."""


@dataclass(frozen=True)
class Method:
    """One method."""

    name: str
    """As in the paper's commands."""
    title: str
    family: Family
    summary: str
    """One line."""
    source: str
    """Where it was published, and the code whose behaviour fidelity "paper" has."""
    settings: dict[str, Any] = field(default_factory=dict)
    paper: dict[str, Any] = field(default_factory=dict)
    """What the paper's table prints where it differs from `settings`."""
    quirks: tuple[str, ...] = ()
    """Names in `QUIRKS` that concern it."""
    per_task: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Settings that are others on some tasks."""

    def defaults(self, task: str, fidelity: str) -> dict[str, Any]:
        """Its own values of the settings that `TrainConfig` leaves open."""
        published = fidelity == "paper"
        quirks = {name: QUIRKS[name].published if published else QUIRKS[name].corrected for name in self.quirks}
        return {**quirks, **self.settings, **self.per_task.get(task, {})}


_CRITICS = {"critic_learning_rate": 1e-3, "critic_batch": 128, "critic_passes": 10}
_SB_TRPO = {
    "advantage": "mc",
    "target_kl": 0.01,
    "cg_iterations": 50,
    "cg_damping": 0.02,
    # Not the paper's, which runs all 50 iterations with 1e-6 in their denominators: see docs/algorithms/sb-trpo.md.
    "cg_tolerance": 0.05,
    "cg_epsilon": 0.0,
    "line_search_tries": 100,
    "beta": 0.75,
    "solver": "convex",
    **_CRITICS,
}
_TRUST_REGION = {
    "advantage": "gae",
    "target_kl": 0.01,
    "cg_iterations": 15,
    "cg_damping": 0.1,
    "cg_tolerance": 0.0,
    "line_search_tries": 15,
    **_CRITICS,
}
_FIRST_ORDER = {
    "advantage": "gae",
    "target_kl": 0.02,
    "learning_rate": 3e-4,
    "policy_batch": 64,
    "policy_passes": 40,
    "clip": 0.2,
    "critic_learning_rate": 3e-4,
}
_MULTIPLIER = {"multiplier_init": 1e-3, "multiplier_rate": 0.035}
_ALL = ("bootstrap_raw_observation",)
_COSTLY = ("bootstrap_raw_observation", "first_cost_zero")
_TRUST = ("kl_reduction", "cg_epsilon", *_COSTLY)

_SAFEPO = "code: SafePO"
_CTRPO = "code: the C-TRPO authors'"

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "sb-trpo", "SB-TRPO", "trust region",
            "the paper's method: every step keeps a share of the best cost decrease; Monte Carlo, no critic",
            "SB-TRPO: Towards Safe Reinforcement Learning with Hard Constraints",
            _SB_TRPO, {"cg_tolerance": "–"}, ("kl_reduction", *_ALL),
        ),
        Method(
            "sb-trpo_rcritic", "SB-TRPO, reward critic", "trust region",
            "SB-TRPO with a critic for reward, Monte Carlo for cost",
            "SB-TRPO: Towards Safe Reinforcement Learning with Hard Constraints",
            {**_SB_TRPO, "advantage": "gae-reward"}, {"cg_tolerance": "–"}, ("kl_reduction", *_ALL),
        ),
        Method(
            "sb-trpo_critic", "SB-TRPO, both critics", "trust region",
            "SB-TRPO with critics for reward and cost",
            "SB-TRPO: Towards Safe Reinforcement Learning with Hard Constraints",
            {**_SB_TRPO, "advantage": "gae"}, {"cg_tolerance": "–"}, ("kl_reduction", *_ALL),
        ),
        Method(
            "ppo_lag", "PPO-Lag", "first order",
            "PPO on reward less a multiple of cost; the multiplier follows the violation",
            f"Ray et al., Benchmarking Safe Exploration in Deep RL (2019); {_SAFEPO}",
            {**_FIRST_ORDER, **_MULTIPLIER}, {}, _COSTLY,
        ),
        Method(
            "trpo_lag", "TRPO-Lag", "trust region",
            "TRPO on reward less a multiple of cost; the multiplier follows the violation",
            f"Ray et al., Benchmarking Safe Exploration in Deep RL (2019); {_SAFEPO}",
            {**_TRUST_REGION, **_MULTIPLIER}, {}, _TRUST,
        ),
        Method(
            "cpo", "CPO", "trust region",
            "the best reward step in the trust region that a linear model says is feasible",
            f"Achiam et al., Constrained Policy Optimization (ICML 2017); {_SAFEPO}",
            _TRUST_REGION, {}, (*_TRUST, "cpo_as_published"),
        ),
        Method(
            "cup", "CUP", "first order",
            "a PPO step for reward, then a penalised step back towards feasibility",
            f"Yang et al., Constrained Update Projection (NeurIPS 2022); {_SAFEPO}",
            {**_FIRST_ORDER, **_MULTIPLIER, "cup_lambda": 0.95},
            {"multiplier_max": 2.0, "policy_batch": 20_000}, (*_COSTLY, "multiplier_max"),
        ),
        Method(
            "cppo_pid", "CPPO-PID", "first order",
            "PPO-Lag whose multiplier is a PID controller of the violation",
            f"Stooke et al., Responsive Safety in RL by PID Lagrangian Methods (ICML 2020); {_SAFEPO}",
            {**_FIRST_ORDER, "multiplier_init": 1e-3, "pid_kp": 0.1, "pid_ki": 0.01, "pid_kd": 0.01},
            {"pid_kd": 0.1, "clip": "–"}, _COSTLY,
        ),
        Method(
            "focops", "FOCOPS", "first order",
            "the optimal policy in a KL ball, projected back to the network by its own loss",
            f"Zhang et al., First Order Constrained Optimization in Policy Space (NeurIPS 2020); {_SAFEPO}",
            {**{k: v for k, v in _FIRST_ORDER.items() if k != "clip"}, **_MULTIPLIER, "multiplier_max": 2.0,
             "temperature": 1.5},
            {"multiplier_rate": "–"}, (*_COSTLY, "focops_broadcast"),
        ),
        Method(
            "rcpo", "RCPO", "trust region",
            "natural gradient steps on reward less a multiple of cost, without a line search",
            f"Tessler et al., Reward Constrained Policy Optimization (ICLR 2019); {_SAFEPO}",
            {**_TRUST_REGION, **_MULTIPLIER, "line_search_tries": 1},
            {"multiplier_init": "–", "multiplier_rate": "–"}, _TRUST,
        ),
        Method(
            "pcpo", "PCPO", "trust region",
            "a reward step, then a projection onto the linear model of the constraint",
            f"Yang et al., Projection-Based Constrained Policy Optimization (ICLR 2020); {_SAFEPO}",
            {**_TRUST_REGION, "line_search_tries": 200}, {}, (*_TRUST, "pcpo_plain_gradient"),
        ),
        Method(
            "p3o", "P3O", "first order",
            "PPO with an exact penalty: a hinge on the clipped cost surrogate",
            f"Zhang et al., Penalized Proximal Policy Optimization (IJCAI 2022); {_CTRPO}",
            {**_FIRST_ORDER, "penalty": 10.0}, {}, _COSTLY,
        ),
        Method(
            "c_trpo", "C-TRPO", "trust region",
            "TRPO whose divergence has a barrier at the cost limit; pure cost descent beyond it",
            f"Milosevic et al., Embedding Safety into RL: a New Take on Trust Region Methods (2024); {_CTRPO}",
            {**_TRUST_REGION, "critic_batch": 256, "barrier": 1.0, "hysteresis": 1.0}, {}, _TRUST,
            {"SafetyHopperVelocity-v1": {"critic_batch": 128}},
        ),
        Method(
            "c3po", "C3PO", "first order",
            "PPO with a growing hinge penalty that begins before the limit is reached",
            f"Milosevic et al., Central Path Proximal Policy Optimization (2025); {_CTRPO}",
            {**_FIRST_ORDER, "target_kl": 0.01, "policy_batch": 128, "policy_passes": 10, "critic_batch": 128,
             "critic_passes": 10, "penalty": 50.0, "penalty_start": 0.1, "omega": 0.05},
            {"penalty_start": "–"}, (*_COSTLY, "stale_critic_clip"),
        ),
        Method(
            "crpo", "CRPO", "trust region",
            "reward steps while the cost is within its limit, cost steps while it is not",
            "Xu et al., CRPO: A New Approach for Safe RL with Convergence Guarantee (ICML 2021); in OmniSafe as OnCRPO",
            {**_TRUST_REGION, "tolerance": 0.0}, {}, _TRUST,
        ),
        Method(
            "pcrpo", "PCRPO", "trust region",
            "reward, cost, or both steps with their conflict projected away, by how far the cost is from its limit",
            "Gu et al., Balance Reward and Safety Optimization for Safe RL (AAAI 2024); constants are our choice",
            {**_TRUST_REGION, "slack_above": 5.0, "slack_below": -5.0}, {}, _TRUST,
        ),
        Method(
            "appo", "APPO", "first order",
            "PPO on an augmented Lagrangian: a multiplier and a quadratic penalty",
            "Dai et al., Augmented Proximal Policy Optimization for Safe RL (AAAI 2023); the authors' loss on our PPO",
            {**_FIRST_ORDER, "multiplier_init": 1e-3, "multiplier_rate": 0.2, "sigma": 0.1}, {}, _COSTLY,
        ),
        Method(
            "trpo", "TRPO", "trust region",
            "reward alone: the yardstick of what ignoring cost gains",
            f"Schulman et al., Trust Region Policy Optimization (ICML 2015); {_SAFEPO}",
            _TRUST_REGION, {}, ("kl_reduction", "cg_epsilon", *_ALL),
        ),
        Method(
            "ppo", "PPO", "first order",
            "reward alone: the yardstick of what ignoring cost gains",
            f"Schulman et al., Proximal Policy Optimization Algorithms (2017); {_SAFEPO}",
            _FIRST_ORDER, {}, _ALL,
        ),
    )
}  # fmt: skip


def method(name: str) -> Method:
    """The method of this name; hyphens and underscores are alike.

    >>> method("PPO-Lag").name, method("sb_trpo").name
    ('ppo_lag', 'sb-trpo')
    """
    known = {_plain(key): found for key, found in METHODS.items()}
    if found := known.get(_plain(name)):
        return found
    near = difflib.get_close_matches(_plain(name), known, n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(known[key].name for key in near)}? " if near else ""
    raise ValueError(f"there is no algorithm {name!r}; {hint}`sbtrpo algorithms` lists all of them")


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")
