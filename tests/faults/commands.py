"""Commands of sbtrpo as processes that one can kill.

Most are forked from a process that has imported the program, which saves each of them seconds; what runs is the
command line as it is. Some are new processes from the first line on.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.faults.child import Hook, perform

PATIENCE = 180.0
"""Seconds after which a command counts as hanging."""
_WARM = multiprocessing.get_context("forkserver")
_WARM.set_forkserver_preload(["tests.faults.preload"])


class Hanging(Exception):  # noqa: N818
    """A command that did not end."""


@dataclass(frozen=True)
class Ended:
    """A command that is over."""

    arguments: tuple[str, ...]
    status: int
    """Its exit status; below 0, the signal that ended it."""
    output: str

    @property
    def words(self) -> str:
        """The command and how it ended, for a message."""
        return (
            f"`sbtrpo {' '.join(self.arguments)}` ended with {self.status}: {self.output.strip()[-600:] or 'no word'}"
        )


class Command:
    """A command that has begun."""

    def __init__(self, arguments: Sequence[str], hooks: Sequence[Hook], log: Path, fresh: bool = False) -> None:
        self.arguments, self._log = tuple(arguments), log
        self._process: subprocess.Popen[bytes] | multiprocessing.process.BaseProcess
        given = {"arguments": list(arguments), "hooks": list(hooks), "log": str(log)}
        if fresh:
            self._process = subprocess.Popen([sys.executable, "-m", "tests.faults.child", json.dumps(given)])
        else:
            self._process = _WARM.Process(target=perform, kwargs=given)
            self._process.start()

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._status() is None

    def signal(self, number: int) -> None:
        """Send it a signal."""
        assert self._process.pid is not None
        if self.running:
            os.kill(self._process.pid, number)

    def children(self) -> list[int]:
        """The processes that it has started."""
        return [
            int(pid)
            for path in Path(f"/proc/{self._process.pid}/task").glob("*/children")
            for pid in path.read_text().split()
        ]

    def wait(self, seconds: float = PATIENCE) -> Ended:
        """How it ended."""
        deadline = time.monotonic() + seconds
        while (status := self._status()) is None:
            if time.monotonic() > deadline:
                self.signal(signal.SIGKILL)
                raise Hanging(f"`sbtrpo {' '.join(self.arguments)}` did not end within {seconds:g} seconds")
            time.sleep(0.005)
        return Ended(self.arguments, status, self._log.read_text(errors="replace") if self._log.exists() else "")

    def _status(self) -> int | None:
        if isinstance(self._process, subprocess.Popen):
            return self._process.poll()
        return self._process.exitcode
