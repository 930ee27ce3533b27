"""How a run begins that goes on from a trained policy: what must fit, and what it takes over.

Policy and statistics of observations are taken over, and critics where they are of the same shape and constraints;
moments of optimisers, multipliers and all else begin anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sbtrpo.config import TrainConfig
from sbtrpo.config.tasks import is_foreign
from sbtrpo.envs import get_spec
from sbtrpo.envs.observation import action_size, observation_size
from sbtrpo.errors import UserError
from sbtrpo.nets.critics import Critics
from sbtrpo.nets.policy import Policy
from sbtrpo.runs.checkpoint import check_form
from sbtrpo.runs.policy_file import NETWORK, StoredPolicy, as_policy, stored_policy


def start_of(config: TrainConfig) -> StoredPolicy | None:
    """The policy that a run begins with; None where it begins anew."""
    return None if config.init_from is None else stored_policy(config.init_from, config.init_which)


def check_start(config: TrainConfig) -> None:
    """Refuse a start that does not fit a run, as far as that is known before there are worlds."""
    start = start_of(config)
    if start is None:
        return
    _check_settings(start, config)
    if not is_foreign(config.task):
        spec = get_spec(config.task)
        _check_sizes(start, config, (observation_size(spec), False, action_size(spec)))


def take_over(start: StoredPolicy, config: TrainConfig, policy: Policy, critics: Critics | None) -> str:
    """Let policy and critics begin as those of the start; returns a sentence on it.

    Raises:
        UserError: where the policy does not fit.
    """
    _check_settings(start, config)
    _check_sizes(start, config, (policy.observation_size, policy.head.discrete, policy.head.outputs))
    with as_policy(start.source):
        theirs, ours = start.policy, policy.state_dict()
        if differing := [name for name in ("low", "high", "action", "image") if not _alike(theirs, ours, name)]:
            what = "images" if differing == ["image"] else "actions"
            raise UserError(
                f"the {what} of {start.source} have other bounds or shapes than those of {config.task_entry.label};"
                " take a policy that was trained on such a task"
            )
        check_form(theirs, ours, "policy")
        policy.load_state_dict(theirs)
        alike = start.settings["constraints"] == list(config.constraints)
        judged = critics is not None and alike and np.shape(start.critics) == np.shape(critics.stack.theta)
        if critics is not None and judged:
            critics.set(start.critics)
    of_critics = "" if critics is None else ", and the critics" if judged else "; critics begin anew"
    trained = f"{start.settings['algo']} on {start.settings['task']}, seed {start.settings['seed']}"
    return f"the run begins with the policy of {trained}, after {start.steps:,} steps{of_critics}"


def _check_settings(start: StoredPolicy, config: TrainConfig) -> None:
    """Refuse another network than the run's."""
    named = start.network
    if differing := [name for name in NETWORK if named.get(name) != config.get(name)]:
        theirs, ours = (", ".join(f"{name} {_words(one.get(name))}" for name in differing) for one in (named, config))
        flags = " ".join(f"--{name.replace('_', '-')} {_words(named.get(name))}" for name in differing)
        raise UserError(f"{start.source} has {theirs}, and the run {ours}; give {flags}, or begin with another policy")


def _check_sizes(start: StoredPolicy, config: TrainConfig, sizes: tuple[int, bool, int]) -> None:
    """Refuse a policy for other observations or actions."""
    with as_policy(start.source):
        params = start.policy["params"]
        theirs = len(start.policy["normaliser"]["mean"]), not len(params[0]), len(params[-1])
    if theirs != sizes:
        their, our = (f"{seen} observations and {n} {'choices' if d else 'actions'}" for seen, d, n in (theirs, sizes))
        raise UserError(
            f"{start.source} is a policy for {their}, and {config.task_entry.label} has {our}; take one that was"
            " trained on such a task"
        )


def _alike(theirs: Mapping[str, Any], ours: Mapping[str, Any], name: str) -> bool:
    """Whether two policies have the same of this; older versions did not tell what actions are."""
    if name == "action" and name in theirs and name in ours:
        names = ("shape", "start", "table")
        return all(np.array_equal(theirs[name].get(part, ()), ours[name].get(part, ())) for part in names)
    return name == "action" or np.array_equal(theirs.get(name, ()), ours.get(name, ()))


def _words(value: Any) -> str:
    """A setting as the command line takes it."""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
