"""The methods: one file each, on one trust-region core and one first-order core."""

from __future__ import annotations

import torch

from sbtrpo.algorithms.appo import APPO
from sbtrpo.algorithms.base import Method
from sbtrpo.algorithms.c3po import C3PO
from sbtrpo.algorithms.c_trpo import CTRPO
from sbtrpo.algorithms.cpo import CPO
from sbtrpo.algorithms.cppo_pid import CPPOPID
from sbtrpo.algorithms.crpo import CRPO
from sbtrpo.algorithms.cup import CUP
from sbtrpo.algorithms.focops import FOCOPS
from sbtrpo.algorithms.p3o import P3O
from sbtrpo.algorithms.pcpo import PCPO
from sbtrpo.algorithms.pcrpo import PCRPO
from sbtrpo.algorithms.ppo import PPO
from sbtrpo.algorithms.ppo_lag import PPOLag
from sbtrpo.algorithms.rcpo import RCPO
from sbtrpo.algorithms.sb_trpo import SBTRPO
from sbtrpo.algorithms.trpo import TRPO
from sbtrpo.algorithms.trpo_lag import TRPOLag
from sbtrpo.config import TrainConfig
from sbtrpo.nets.critics import Critics
from sbtrpo.nets.policy import Policy

IMPLEMENTATIONS: dict[str, type[Method]] = {
    "sb-trpo": SBTRPO,
    "sb-trpo_rcritic": SBTRPO,
    "sb-trpo_critic": SBTRPO,
    "ppo_lag": PPOLag,
    "trpo_lag": TRPOLag,
    "cpo": CPO,
    "cup": CUP,
    "cppo_pid": CPPOPID,
    "focops": FOCOPS,
    "rcpo": RCPO,
    "pcpo": PCPO,
    "p3o": P3O,
    "c_trpo": CTRPO,
    "c3po": C3PO,
    "crpo": CRPO,
    "pcrpo": PCRPO,
    "appo": APPO,
    "trpo": TRPO,
    "ppo": PPO,
}
"""Every method of the catalogue."""


def make_method(policy: Policy, critics: Critics | None, config: TrainConfig, orders: torch.Generator) -> Method:
    """The method that a resolved config names."""
    return IMPLEMENTATIONS[config.algo](policy, critics, config, orders)
