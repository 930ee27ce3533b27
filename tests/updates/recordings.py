"""Recorded updates of the published algorithms: what they hold, and how they are replayed through ours.

The folder is the environment variable SBTRPO_UPDATES; without it, a part of the recordings that comes with the tests.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sbtrpo.algorithms import make_method
from sbtrpo.algorithms.base import Batch, Method
from sbtrpo.config import TrainConfig
from sbtrpo.nets.critics import Critics
from sbtrpo.nets.network import flatten
from sbtrpo.nets.policy import Policy
from tests.settings import concerning

FOLDER = Path(os.environ.get("SBTRPO_UPDATES") or Path(__file__).parent.parent / "data" / "updates")
ALGORITHMS = {
    "trpo_lag": "trpo_lag", "cpo": "cpo", "pcpo": "pcpo", "rcpo": "rcpo", "trpo": "trpo", "natural_pg": "rcpo",
    "ppo_lag": "ppo_lag", "ppo": "ppo", "cup": "cup", "focops": "focops", "cppo_pid": "cppo_pid", "ctrpo": "c_trpo",
    "p3o": "p3o", "c3po": "c3po",
}  # fmt: skip
"""Name of the recording: name of ours. The natural policy gradient is RCPO with a multiplier that stays 0."""
OBSERVATIONS, ACTIONS = 12, 2


@functools.cache
def arrays(name: str) -> dict[str, Any]:
    with np.load(FOLDER / f"{name}.npz", allow_pickle=False) as file:
        return {key: file[key] for key in file.files}


def runs(name: str) -> list[dict[str, Any]]:
    """What is known of the recorded runs of an algorithm, those in this folder."""
    found: list[dict[str, Any]] = json.loads(str(arrays(name)["meta"]))["runs"]
    return found


@dataclass
class Parts:
    """A parameter vector of the recordings, cut up."""

    actor: Any
    critics: Any
    """(2, P) reward, cost"""


def cut(vector: Any, hidden: list[int]) -> Parts:
    critic = (OBSERVATIONS + 1) * hidden[0] + (hidden[0] + 1) * hidden[1] + hidden[1] + 1
    return Parts(vector[: len(vector) - 2 * critic], vector[len(vector) - 2 * critic :].reshape(2, critic))


@dataclass
class Update:
    """One recorded update: all that goes in, and all that came out."""

    run: str
    epoch: int
    batch: Batch
    cost: float
    progress: float
    before: Parts
    after: Parts
    middle: Any
    """CUP: the actor after its first stage."""
    facts: dict[str, Any]
    """What the published code reported."""


def updates(name: str, run: dict[str, Any]) -> Iterator[Update]:
    recorded, common = arrays(name), arrays("common")
    tag, shared, hidden = run["run"], run["common"], run["hidden_sizes"]
    world = f"{run['set']}_s{run['seed']}"
    for epoch in range(len(recorded[f"{tag}/after"])):
        if epoch == 0:
            action, numbers = common[f"{shared}/act"], common[f"{shared}/fbatch"]
            before = common[f"{shared}/params"]
        else:
            action, numbers = recorded[f"{tag}/act"][epoch - 1], recorded[f"{tag}/fbatch"][epoch - 1]
            before = recorded[f"{tag}/after"][epoch - 1]
        log_prob, adv_r, adv_c, target_r, target_c = (torch.from_numpy(row.copy()) for row in numbers)
        batch = Batch(
            obs=torch.from_numpy(common[f"{world}/e{epoch}/obs"].astype(np.float32) / 32),
            action=torch.from_numpy(action.astype(np.float32) / 128),
            log_prob=log_prob,
            advantages=torch.stack([adv_r, adv_c]),
            targets=torch.stack([target_r, target_c]),
        )
        facts = run["epoch"][epoch]
        middle = recorded.get(f"{tag}/mid_actor")
        yield Update(
            tag, epoch, batch, facts["EpCost_used"], epoch / run["epochs"], cut(before, hidden),
            cut(recorded[f"{tag}/after"][epoch], hidden), None if middle is None else middle[epoch], facts,
        )  # fmt: skip


def settings(name: str, run: dict[str, Any]) -> TrainConfig:
    """Our settings for a recorded run: the published ones at its sizes."""
    sizes = concerning(
        ALGORITHMS[name],
        cost_limit=run["cost_limit"] or 0.0,
        policy_batch=run["batch_size"],
        critic_batch=run["batch_size"],
        policy_passes=run["learning_iters"],
        critic_passes=run["learning_iters"],
    )
    own: dict[str, Any] = {"multiplier_init": 0.0, "multiplier_rate": 0.0} if name == "natural_pg" else {}
    return TrainConfig(
        task="ToyCorridor-v0", algo=ALGORITHMS[name], num_envs=4, steps_per_epoch=run["steps_per_epoch"],
        total_steps=run["epochs"] * run["steps_per_epoch"], target_kl=run["target_kl"],
        hidden=tuple(run["hidden_sizes"]), **sizes, **own,
    )  # fmt: skip


class Replay:
    """Our method on recorded batches. Before every update it gets the recorded parameters; the rest it carries.

    In double precision, the policy and what is computed from it are; critics and minibatches always are in single.
    """

    def __init__(self, name: str, run: dict[str, Any], dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self.config = settings(name, run)
        generator = torch.Generator().manual_seed(0)
        self.policy = Policy(OBSERVATIONS, ACTIONS, self.config.hidden, generator)
        self.policy.params = [tensor.to(dtype) for tensor in self.policy.params]
        self.critics = Critics(2, OBSERVATIONS, self.config.hidden, self.config.method.critic_learning_rate, generator)
        self.method: Method[Any] = make_method(self.policy, self.critics, self.config, generator)

    def load(self, before: Parts) -> None:
        self.policy.set(torch.from_numpy(before.actor.copy()))
        for head, vector in enumerate(before.critics):
            start = 0
            for part in self.critics.stack.params:
                values = vector[start : start + part[head].size]
                start += part[head].size
                part[head] = values.reshape(part[head].T.shape).T

    def update(self, recorded: Update) -> tuple[Parts, dict[str, float]]:
        self.load(recorded.before)
        names = ("obs", "action", "log_prob", "advantages")
        batch = replace(recorded.batch, **{name: getattr(recorded.batch, name).to(self.dtype) for name in names})
        facts = self.method.update(batch, recorded.cost, recorded.progress)
        heads = [np.concatenate([part[head].T.reshape(-1) for part in self.critics.stack.params]) for head in range(2)]
        return Parts(flatten(self.policy.params).numpy().copy(), np.stack(heads)), facts


def error(ours: Any, before: Any, after: Any) -> float:
    """The greatest difference, relative to the greatest recorded change; absolute where that is none to speak of."""
    change = float(np.abs(after - before).max())
    return float(np.abs(ours - after).max()) / (change if change > 1e-7 else 1.0)
