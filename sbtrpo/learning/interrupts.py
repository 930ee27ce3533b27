"""Ctrl-C while something runs."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def interruptible(pool: Any = None) -> Iterator[threading.Event]:
    """Ctrl-C asks for a stop after the running epoch; a second one stops at once.

    A pool of somebody's own environment whose worlds do not answer then gives the epoch up.
    """
    asked = threading.Event()
    if hasattr(pool, "stopping"):
        pool.stopping = asked.is_set

    def ask(number: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    if threading.current_thread() is not threading.main_thread():  # only it may set handlers
        yield asked
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
