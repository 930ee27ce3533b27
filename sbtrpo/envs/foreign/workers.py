"""Worker processes: each holds several foreign environments, and resets or steps them on request.

Gymnasium's `AsyncVectorEnv` is no alternative: it needs a process for each world, it fails when one of them dies, and
it does not know the six-value `step` of Safety Gymnasium.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any

from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from sbtrpo.envs.foreign.costs import CostReader
from sbtrpo.envs.foreign.environment import UnfitEnvironment, one_line
from sbtrpo.envs.foreign.world import Interface, World
from sbtrpo.envs.streams import Floats, Ints

PATIENCE = 300.0
"""Seconds after which a worker that does not answer counts as dead."""


class Host:
    """The worlds of one worker process, made when they are first reset and anew after an error."""

    def __init__(self, task: str, count: int) -> None:
        self.task = task
        self.worlds: list[World | None] = [None] * count

    def describe(self, seed: int) -> Interface:
        """The first world's spaces, costs and time limit."""
        return self._world(0).describe(seed)

    def reset(self, seeds: Mapping[int, int]) -> tuple[dict[int, Floats], dict[int, str]]:
        """Begin episodes with these seeds; returns the observations, and what went wrong elsewhere."""
        obs: dict[int, Floats] = {}
        errors: dict[int, str] = {}
        for k, seed in seeds.items():
            with self._guarded(k, errors):
                obs[k] = self._world(k).reset(seed)
        return obs, errors

    def step(self, actions: NDArray[Any], costs: CostReader) -> tuple[dict[int, Floats], dict[int, str]]:
        """Step all worlds; returns the values of each, and what went wrong elsewhere."""
        values: dict[int, Floats] = {}
        errors: dict[int, str] = {}
        for k, action in enumerate(actions):
            with self._guarded(k, errors):
                values[k] = self._world(k).step(action, costs)
        return values, errors

    def _world(self, k: int) -> World:
        world = self.worlds[k]
        if world is None:
            world = self.worlds[k] = World(self.task)
        return world

    @contextlib.contextmanager
    def _guarded(self, k: int, errors: dict[int, str]) -> Iterator[None]:
        """Record an error and drop its world. An `UnfitEnvironment` passes: a new episode would not help."""
        try:
            yield
        except UnfitEnvironment:
            raise
        except Exception as error:
            errors[k] = one_line(error)
            if (world := self.worlds[k]) is not None:
                world.close()
            self.worlds[k] = None

    def close(self) -> None:
        """Let go of all worlds."""
        for world in self.worlds:
            if world is not None:
                world.close()


def _serve(connection: Connection, task: str, count: int) -> None:
    """What a worker process does: answer commands until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the trainer, which finishes its epoch
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for what the environment imports: all cores are in use
    host = Host(task, count)
    with threadpool_limits(1), contextlib.suppress(EOFError, OSError):
        while True:
            command, *arguments = connection.recv()
            try:
                answer = getattr(host, command)(*arguments)
            except UnfitEnvironment as error:
                answer = error
            connection.send(answer)
    host.close()


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Keep new processes from running the user's script once more: they need nothing from it."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def start_process(target: Callable[..., None], *arguments: Any) -> tuple[Connection, BaseProcess]:
    """Run `target(connection, *arguments)` in a new process; returns our end of the connection."""
    # Not forked: threads of torch and MuJoCo would not survive it.
    context = multiprocessing.get_context("spawn")
    our_end, their_end = context.Pipe()
    process = context.Process(target=target, args=(their_end, *arguments), daemon=True)
    with _without_main():
        process.start()
    their_end.close()
    return our_end, process


def stop_process(connection: Connection, process: BaseProcess, patience: float = 5.0) -> None:
    """Close the connection, which ends the process; kill it if it has not ended after `patience` seconds."""
    connection.close()
    process.join(patience)
    if process.exitcode is None:
        process.kill()
        process.join()
    process.close()


class Worker:
    """The pool's connection to a process with worlds; a process that dies is replaced."""

    def __init__(self, task: str, rows: Ints) -> None:
        self.task, self.rows = task, rows
        self._connection, self._process = start_process(_serve, task, len(rows))

    def ask(self, *message: Any) -> None:
        """Send a command; `answer` returns None if the process is dead."""
        with contextlib.suppress(OSError):
            self._connection.send(message)

    def answer(self) -> Any:
        """The reply, or None if the process died; then a new process is there, whose worlds are not yet reset."""
        with contextlib.suppress(EOFError, OSError):
            if self._connection.poll(PATIENCE):
                return self._connection.recv()
        self._process.kill()
        self.close()
        self._connection, self._process = start_process(_serve, self.task, len(self.rows))
        return None

    def close(self) -> None:
        """End the process; it closes its worlds first."""
        stop_process(self._connection, self._process)
