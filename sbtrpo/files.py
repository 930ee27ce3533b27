"""Writes files so that after a kill either the old or the new version is there, whole."""

from __future__ import annotations

import os
from pathlib import Path

UNFINISHED = ".tmp-"
"""Prefix of a file or folder that is being written; a kill may leave it behind."""


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and wait until the disk holds it."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the disk holds the names in a folder; before that, a power cut may undo a rename."""
    if os.name == "nt":  # Windows cannot open folders
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file in one step: a reader finds the old or the new content, also after a kill."""
    unfinished = path.with_name(f"{UNFINISHED}{path.name}")
    write_synced(unfinished, content)
    unfinished.replace(path)
    sync_folder(path.parent)
