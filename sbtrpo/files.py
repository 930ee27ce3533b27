"""Files that appear whole: a kill leaves the old one or the new one."""

from __future__ import annotations

import os
from pathlib import Path

UNFINISHED = ".tmp-"
"""Prefix of what is being written, and of what a kill may leave behind."""


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and wait until the disk holds it."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the disk holds the names in a folder: a rename is safe only then."""
    if os.name == "nt":  # Windows opens no folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file so that a reader, and whoever comes after a kill, finds the old or the new one, whole."""
    unfinished = path.with_name(f"{UNFINISHED}{path.name}")
    write_synced(unfinished, content)
    unfinished.replace(path)
    sync_folder(path.parent)
