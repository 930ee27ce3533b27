"""The process of a command that suffers: the real command line, after hooks that bring the faults about."""

from __future__ import annotations

import atexit
import functools
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Hook = tuple[str, dict[str, Any]]
"""A function of this module and its arguments."""
_CHANGING = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def perform(arguments: Sequence[str], hooks: Sequence[Hook], log: str) -> None:
    """Run a command of sbtrpo; what it prints goes to a file."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    for name, values in hooks:
        globals()[name](**values)
    from sbtrpo.cli.app import main

    sys.argv = ["sbtrpo", *arguments]
    status = main()
    atexit._run_exitfuncs()  # a forked process would not
    sys.exit(status)


# ---- moments -------------------------------------------------------------------------------------------------------


def _at_changes(folder: str, act: Callable[[int], None]) -> None:
    """Call `act` with a number before each change to a file or folder below this one."""
    count = 0

    def look(event: str, details: tuple[Any, ...]) -> None:
        nonlocal count
        if event not in _CHANGING and not (event == "open" and isinstance(details[2], int) and details[2] & _WRITING):
            return
        if isinstance(details[0], str | os.PathLike) and os.fspath(details[0]).startswith(folder):
            count += 1
            act(count)

    sys.addaudithook(look)


def count_changes(folder: str, into: str) -> None:
    """Tell how often the command changed something below the folder."""
    last = 0

    def note(number: int) -> None:
        nonlocal last
        last = number

    _at_changes(folder, note)
    atexit.register(lambda: Path(into).write_text(str(last)))


def strike(folder: str, number: int, at: int, delay: float) -> None:
    """Send a signal to this process, some seconds after it began its change number `at` below the folder (0: now)."""

    def act(change: int) -> None:
        if change != at:
            return
        if delay == 0:
            os.kill(os.getpid(), number)
        else:
            timer = threading.Timer(delay, os.kill, (os.getpid(), number))
            timer.daemon = True
            timer.start()

    act(0)
    _at_changes(folder, act)


# ---- faults of the machine -----------------------------------------------------------------------------------------


def limit_files(size: int, deadly: bool = False) -> None:
    """Let no file grow beyond a size: a write fails there, or, if deadly, ends the process and leaves half a file."""
    if deadly:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def shift_clock(seconds: float, after: int) -> None:
    """Let the wall clock jump once it was read a number of times."""
    read, count = time.time, 0

    def jumped() -> float:
        nonlocal count
        count += 1
        return read() + (seconds if count > after else 0.0)

    time.time = jumped


def spoil_world(epoch: int, world: int) -> None:
    """Put a NaN into a world's state before an epoch."""
    from sbtrpo.learning.trainer import Epoch, Trainer

    run = Trainer.run_epoch

    def spoiled(trainer: Trainer) -> Epoch:
        if trainer.epoch + 1 == epoch:
            trainer.collector.pool.physics.qpos[world, 0] = float("nan")  # type: ignore[union-attr]
        return run(trainer)

    Trainer.run_epoch = spoiled  # type: ignore[method-assign]


# ---- what the test must notice -------------------------------------------------------------------------------------


def sabotage(what: str) -> None:
    """Break the program, so that something is lost in silence."""
    if what == "row":
        from sbtrpo.runs.tables import Table

        rewind = Table.rewind

        def forgetful(table: Table, epoch: int) -> None:
            rewind(table, epoch)
            lines = table.path.read_text().splitlines(keepends=True) if table.path.exists() else []
            if len(lines) > 2:
                table.path.write_text("".join([lines[0], *lines[2:]]))

        Table.rewind = forgetful  # type: ignore[method-assign]
    elif what == "episodes":
        from sbtrpo.runs.tables import Episodes

        Episodes.add = lambda episodes, epoch, columns: None  # type: ignore[method-assign]
    elif what == "weights":
        from sbtrpo.learning.trainer import Trainer

        load = Trainer.load_state_dict

        @functools.wraps(load)
        def careless(trainer: Trainer, state: Any) -> None:
            load(trainer, state)
            trainer.policy.params[-1].data[0] += 1e-6

        Trainer.load_state_dict = careless  # type: ignore[method-assign]
    else:
        raise ValueError(f"there is no sabotage {what!r}")


if __name__ == "__main__":
    perform(**json.loads(sys.argv[1]))
