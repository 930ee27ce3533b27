"""Writes files so that after a kill either the old or the new version is there, whole."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

UNFINISHED = ".tmp-"
"""Prefix of a file or folder that is being written; a kill may leave it behind."""
WINDOWS = os.name == "nt"
PATIENCE_SECONDS = 5.0
"""How long a file or folder that others read may stay as it is on Windows."""
Guard = Callable[[], None]
"""Called before each change on the disk; raises if this process must make none."""


def unguarded() -> None:
    """Nobody else writes there."""


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let errors of the file system name this path; those of writing to an open file, as on a full disk, name none."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def check_writable(path: Path) -> None:
    """Refuse a file that cannot be written; asked before the work, so that nobody waits for this error."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} is read-only; name another place for {path.name} with --out")


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and wait until the disk holds it."""
    with naming(path), path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the disk holds the names in a folder; before that, a power cut may undo a rename."""
    if WINDOWS:  # which cannot open folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def move(path: Path, target: Path) -> None:
    """Give a file or folder another name; a file of that name is replaced."""
    _patiently(lambda: path.replace(target))


def remove(path: Path) -> None:
    """Remove a file, or a folder with what is in it, unless it is gone already."""
    if path.is_dir():
        _patiently(lambda: shutil.rmtree(path))
    else:
        _patiently(lambda: path.unlink(missing_ok=True))


def _patiently(change: Callable[[], object]) -> None:
    """Try again where Windows refuses to rename or remove what another program, such as a virus scanner, reads."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            change()
            return
        except PermissionError:
            if not WINDOWS or time.monotonic() >= deadline:
                raise
            time.sleep(0.02)


def write_atomically(path: Path, content: bytes, alone: bool = True, guard: Guard = unguarded) -> None:
    """Replace a file in one step: a reader finds the old or the new content, also after a kill.

    Args:
        path: of the file.
        content: of the file.
        alone: no other process writes this file, so that the next write replaces what a kill left unfinished.
        guard: asked before the file is written, and before it gets its name.
    """
    unfinished = path.with_name(f"{UNFINISHED}{path.name}" + ("" if alone else f"-{uuid.uuid4().hex[:12]}"))
    guard()
    try:
        write_synced(unfinished, content)
        guard()
        move(unfinished, path)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        raise
    sync_folder(path.parent)
