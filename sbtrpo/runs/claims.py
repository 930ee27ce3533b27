"""Who works on a run: a process that trains it holds a claim on its folder, so that no two processes do so at once.

A claim is a small file in the run's folder, and its holder touches it every few seconds. A claim is stale if nobody
has touched it for a minute, or if its process is known to be gone. A process that wants to claim a run first writes
its file and then looks for other claims. Of two processes that do so at once, at most one succeeds. For this, the file
system must show a new file to all who look later.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import sys
import threading
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

BEAT_SECONDS = 5.0
STALE_SECONDS = 60.0
"""A claim that nobody touches for this long is stale."""
LOST = 76
"""Exit status of a process whose claim was taken over."""


class Busy(Exception):  # noqa: N818
    """Another process works on the run."""


class Claim:
    """The right to work on a run; used as a context manager.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with Claim(folder):
    ...     holder(folder) is not None
    True
    >>> holder(folder) is None
    True
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._path = self.folder / f"claim-{uuid.uuid4().hex[:12]}.json"
        self._released = threading.Event()
        self._beat = threading.Thread(target=self._keep_touching, daemon=True)

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps({"host": _here(), "pid": os.getpid()}))
        other = holder(self.folder, besides=self._path)
        if other is not None:
            self._path.unlink(missing_ok=True)
            raise Busy(f"{self.folder} is being worked on by {other}")
        self._beat.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._released.set()
        self._beat.join()
        self._path.unlink(missing_ok=True)

    def _keep_touching(self) -> None:
        while not self._released.wait(BEAT_SECONDS):
            try:
                os.utime(self._path)
            except FileNotFoundError:
                # This process was paused for so long that another one took over; it must not write anything now.
                print(f"the claim on {self.folder} was taken over; stopping at once", file=sys.stderr, flush=True)
                os._exit(LOST)
            except OSError:  # the file system may be back before the claim is stale
                continue


def holder(folder: str | Path, besides: Path | None = None) -> str | None:
    """The process that works on a run, in words; None if there is none. Removes stale claims."""
    folder = Path(folder)
    for path in folder.glob("claim-*.json"):
        if path == besides:
            continue
        try:
            age = _now(folder) - path.stat().st_mtime
            content = json.loads(path.read_text() or "{}")
        except FileNotFoundError:
            continue
        except ValueError:
            content = {}
        if age > STALE_SECONDS or _is_gone(content):
            with contextlib.suppress(OSError):  # a reader may have no right to remove files
                path.unlink()
        else:
            return f"process {content.get('pid', 'unknown')} on {content.get('host', 'an unknown host')}"
    return None


def _now(folder: Path) -> float:
    """The time by the clock of the folder's file system, which may differ from this machine's."""
    probe = folder / f".clock-{uuid.uuid4().hex[:12]}"
    try:
        probe.touch()
        now = probe.stat().st_mtime
        probe.unlink()
    except OSError:  # the folder is read-only
        return time.time()
    return now


def _is_gone(content: dict[str, object]) -> bool:
    """Whether the holder is a process of this machine that no longer exists."""
    pid = content.get("pid")
    if content.get("host") != _here() or not isinstance(pid, int):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # it exists, but is another user's
        return False
    return _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether the process has ended and its parent has not yet taken notice."""
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return False


def _here() -> str:
    """A name for this machine. A container is a separate machine here, because it numbers its processes itself."""
    namespace = ""
    with contextlib.suppress(OSError):
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115
    return f"{platform.node()} {namespace}".strip()
