"""Who writes to a run's folder: the process that trains it holds a claim, so that no two processes do so at once.

A claim is a small file in the run's folder, and its holder touches it every few seconds. A process that wants to claim
a run first writes its file and then looks for other claims. Of two processes that do so at once, at most one succeeds.
For this, the file system must show a new file to all who look later.

A claim of a process of this machine counts as long as the process lives. Any other is watched: it counts no more once
nobody has touched it for a minute by the watcher's own clock. So no two clocks are compared, and two machines with the
same name leave each other's runs alone. A holder that was paused for so long finds its claim gone before it writes.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import sys
import threading
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sbtrpo.errors import UserError
from sbtrpo.files import naming, remove

BEAT_SECONDS = 5.0
STALE_SECONDS = 60.0
"""A claim of another machine that nobody touches for this long is stale."""
_LOOK_SECONDS = 0.5
CLAIMS = "claim-*.json"


class Busy(UserError):  # noqa: N818
    """Another process works on the run."""


class Lost(UserError):  # noqa: N818
    """Another process has taken the run over."""


class Claim:
    """The right to write to a run's folder; used as a context manager.

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

    def take(self) -> Self:
        """Get the right, or raise `Busy`; where another machine's claim may be left over, this takes a minute."""
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._write()
            self._beat.start()
            for path in self.folder.glob(CLAIMS):
                if path != self._path:
                    self._outlast(path)
        except BaseException:
            self.release()
            raise
        return self

    def __enter__(self) -> Self:
        return self.take()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def release(self) -> None:
        """Give the right up."""
        self._released.set()
        if self._beat.is_alive():
            self._beat.join()
        with contextlib.suppress(OSError):
            remove(self._path)

    def check(self) -> None:
        """Raise `Lost` if the right has gone to another process; a holder asks before it writes."""
        if not self._touch():
            raise Lost(
                f"another process has taken over {self.folder}, or the folder was removed, while this one did not"
                " answer; nothing was written since, so look there for how the run goes on"
            )

    def _write(self) -> None:
        me = {**_here(), "pid": os.getpid(), "started": _started(os.getpid())}
        try:
            with naming(self._path):
                self._path.write_text(json.dumps(me), encoding="utf-8")
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES):
                raise
            raise UserError(
                f"{self.folder} cannot be written to ({error.strerror}); go on with a copy of it elsewhere"
            ) from error

    def _touch(self) -> bool:
        """Say that the holder is there; returns whether the claim still is."""
        try:
            os.utime(self._path)
        except OSError as error:
            return not _is_missing(error)  # else the file system may be back before the claim is stale
        return True

    def _keep_touching(self) -> None:
        while not self._released.wait(BEAT_SECONDS) and self._touch():
            pass

    def _outlast(self, path: Path) -> None:
        """Remove a claim once it counts no more; raises `Busy` as soon as its holder is known to be there."""
        first = seen = _look(path)
        began = time.monotonic()
        while seen is not None and (alive := seen.alive()) is not False:
            if alive or seen != first:
                raise Busy(
                    f"{self.folder} is being worked on by {seen.words()}; let it finish, or stop it and try again"
                )
            if seen is first:
                message = f"{self.folder} was claimed by {seen.words()}; waiting {STALE_SECONDS:.0f} s for a sign of it"
                print(message, file=sys.stderr, flush=True)
            elif time.monotonic() - began >= STALE_SECONDS:
                break
            time.sleep(min(_LOOK_SECONDS, STALE_SECONDS))
            seen = _look(path)
        remove(path)


def holder(folder: str | Path) -> str | None:
    """The process that works on a run, in words; None if there is none.

    This is for those who only look, and changes nothing. What it says of another machine's process is a guess by this
    machine's clock; whoever wants the run takes a `Claim`.
    """
    for path in Path(folder).glob(CLAIMS):
        if (seen := _look(path)) is not None:
            alive = seen.alive()
            if alive or (alive is None and abs(time.time() - seen.touched / 1e9) < STALE_SECONDS):
                return seen.words()
    return None


# ---- one claim, seen from outside --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sight:
    """What a look at a claim shows; the next one differs if its holder lives."""

    content: bytes
    touched: int

    def owner(self) -> dict[str, Any]:
        """What the holder wrote of itself."""
        try:
            owner = json.loads(self.content)
        except ValueError:  # it is being written
            owner = None
        return owner if isinstance(owner, dict) else {}

    def words(self) -> str:
        owner = self.owner()
        return f"process {owner.get('pid', 'unknown')} on {owner.get('host', 'an unknown host')}"

    def alive(self) -> bool | None:
        """Whether its process lives; None if this machine cannot know."""
        owner, here = self.owner(), _here()
        if not here["boot"] or any(owner.get(key) != value for key, value in here.items()):
            return None
        try:
            os.kill(owner["pid"], 0)
        except ProcessLookupError:
            return False
        except PermissionError:  # it exists, but is another user's
            pass
        except (KeyError, TypeError, OverflowError):
            return None
        return _started(owner["pid"]) in (owner.get("started"), "unknown")


def _look(path: Path) -> _Sight | None:
    """A claim as it is now; None if it is gone."""
    try:
        try:
            with path.open("rb") as file:  # a file server answers this, a mere stat perhaps a cache of this machine
                return _Sight(file.read(), os.fstat(file.fileno()).st_mtime_ns)
        except PermissionError:
            return _Sight(b"", path.stat().st_mtime_ns)
    except OSError as error:
        if _is_missing(error):
            return None
        raise


def _is_missing(error: OSError) -> bool:
    return error.errno in (errno.ENOENT, errno.ESTALE)  # NFS says the latter of a file that another machine removed


def _here() -> dict[str, str]:
    """What processes that see each other have in common: the machine since its start, and the numbering of processes.

    A container numbers its processes itself. Without `boot`, as on macOS and Windows, no process is known to be gone.
    """
    boot = namespace = ""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115
    return {"host": platform.node(), "boot": boot, "namespace": namespace}


def _started(pid: int) -> str:
    """When a process began, counted from the machine's start; numbers of processes are given again, this is not."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (OSError, ValueError):
        return "unknown"
    return "ended" if state == "Z" else fields[18]  # a zombie has ended, and its parent has not yet taken notice
