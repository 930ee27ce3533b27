"""What makes a run the one that its checkpoint is of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sbtrpo.config import TrainConfig
from sbtrpo.config.train import LATER
from sbtrpo.runs.policy_file import StoredPolicy


def identities(config: TrainConfig, start: StoredPolicy | None = None) -> dict[str, str]:
    """What task, method and the policy at first are, whatever files they come from."""
    effective = config.in_effect() | ({} if start is None else {"init_from": start.identity})
    return {name: str(effective[name]) for name in ("task", "algo", "init_from") if effective[name] is not None}


def changed_settings(saved: Mapping[str, Any], config: TrainConfig) -> list[str]:
    """Settings that shape what a run computes and are not those of its checkpoint, in words.

    A run may be made longer or shorter, and its epochs may begin to grow by worlds. A task or a method from a file is
    the folder's copy of it, whatever its name, and so is the policy that the run began with.
    """
    names = {"seed", *config.in_effect()} - {"total_steps", "init_from", "grow_by"}
    now = {name: plain(value) for name, value in config.settings().items() if name in names}
    for name in ("task", "algo"):
        if all(Path(str(known.get(name)).partition(":")[0]).suffix in (".toml", ".py") for known in (saved, now)):
            del now[name]
    before = {name: saved.get(name, dict(LATER).get(name)) for name in now}
    # Earlier versions wrote None for a default.
    told = {name for name, value in before.items() if value is not None or (name, None) in LATER}
    return [f"{k} ({before[k]!r}, now {v!r})" for k, v in now.items() if k in told and before[k] != v]


def plain(value: Any) -> Any:
    """A value as a checkpoint has it."""
    return list(value) if isinstance(value, tuple) else value
