"""Errors that a user can mend; the command line shows only their message."""

from __future__ import annotations

import errno
import traceback
from pathlib import Path


class UserError(Exception):
    """An error whose message is one sentence that says what to do."""


def in_a_sentence(error: Exception) -> str:
    """An error as one line; where the disk is full, with what to do."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"no space is left to write {error.filename or 'the output'}; make room and give the command again, or"
            " go on with `sbtrpo resume` where a run had begun"
        )
    return " ".join(str(error).split())


def where_raised(error: BaseException) -> str:
    """The last place outside this package that an error came through, or where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    package = str(Path(__file__).parent)
    outside = [frame for frame in frames if not frame.filename.startswith(package)] or list(frames)
    return f"in {outside[-1].filename}, line {outside[-1].lineno}: {outside[-1].line}"
