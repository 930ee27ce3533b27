"""Errors that a user can mend, and warnings; the command line shows only their message."""

from __future__ import annotations

import contextlib
import errno
import itertools
import sys
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BETWEEN = (__name__, "gymnasium", "importlib")
"""Modules in whose folders a user's code is called."""
LONGEST_TRACE = 4000
"""Letters of a traceback that are shown: its end."""


class UserError(Exception):
    """An error whose message is one sentence that says what to do."""


class Alarm(RuntimeWarning):
    """What a user must not overlook, in a sentence; a traceback may stand in the lines below it."""


@contextlib.contextmanager
def alarms_in_a_line() -> Iterator[None]:
    """Show alarms as the command line shows errors, and other warnings as Python does, with their place in the code."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **where: Any) -> None:
        if issubclass(category, Alarm):
            words, _, trace = str(message).partition("\n")
            line = f"sbtrpo: WARNING: {sentence(words, 1500).removeprefix('WARNING: ')}"
            print(line, *filter(None, [trace]), sep="\n", file=sys.stderr, flush=True)
        else:
            usual(message, category, *place, **where)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = usual


def sentence(error: object, most: int = 500) -> str:
    """A message as one line that a person can read, however long what it quotes is."""
    words = " ".join(str(error).split())
    return words if len(words) <= most else f"{words[: most // 2]} ... {words[-most // 2 :]}"


def in_a_sentence(error: Exception) -> str:
    """An error as one line; where the disk is full, with what to do."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"no space is left to write {error.filename or 'the output'}; make room and give the command again, or"
            " go on with `sbtrpo resume` where a run had begun"
        )
    return sentence(error, 1500) or type(error).__name__


def users_traceback(error: BaseException) -> str:
    """The way of an error through a user's code, from where that was called."""
    told = traceback.TracebackException.from_exception(error)
    between = tuple(str(Path(sys.modules[name].__file__ or "").parent) for name in BETWEEN if name in sys.modules)
    frames = list(itertools.dropwhile(lambda frame: frame.filename.startswith(between), told.stack))
    told.stack = traceback.StackSummary.from_list(frames or told.stack)
    text = "".join(told.format()).rstrip()
    return text if len(text) <= LONGEST_TRACE else f"...{text[-LONGEST_TRACE:]}"


def where_raised(error: BaseException) -> str:
    """The last place outside this package that an error came through, or where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    package = str(Path(__file__).parent)
    outside = [frame for frame in frames if not frame.filename.startswith(package)] or list(frames)
    return f"in {outside[-1].filename}, line {outside[-1].lineno}: {outside[-1].line}"
