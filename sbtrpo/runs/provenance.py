"""When and where a run takes place, and with which versions."""

from __future__ import annotations

import importlib.metadata
import platform
from datetime import UTC, datetime

import torch

from sbtrpo.version import VERSION


def provenance() -> dict[str, str]:
    """The versions and the machine of this session."""
    return {
        "sbtrpo_version": VERSION,
        "torch_version": str(torch.__version__),  # its own tells the build, as +cpu, too: builds round differently
        **{f"{name}_version": importlib.metadata.version(name) for name in ("mujoco", "numpy")},
        "python_version": platform.python_version(),
        "host": platform.node(),
        "platform": platform.platform(),
    }


def now() -> str:
    """The time, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
