"""Processes, seen from outside, and signals to this one."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest


def alive(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def interrupt_after(patch: pytest.MonkeyPatch, owner: Any, name: str, call: int) -> None:
    """Let Ctrl-C come at the end of a function's n-th call."""
    real, calls = getattr(owner, name), []

    def interrupted(*arguments: Any) -> Any:
        result = real(*arguments)
        calls.append(name)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGINT)
        return result

    patch.setattr(owner, name, interrupted)
