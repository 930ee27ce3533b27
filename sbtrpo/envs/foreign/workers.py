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
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from types import ModuleType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from sbtrpo.envs.foreign.costs import CostReader
from sbtrpo.envs.foreign.environment import UnfitEnvironment, one_line
from sbtrpo.envs.foreign.world import Interface, World
from sbtrpo.envs.streams import Floats, Ints
from sbtrpo.errors import users_traceback, where_raised

PICTURES_A_SECOND = 30.0
SILENCE = 1.0
"""Seconds without an answer after which nobody who wants to stop waits any longer."""
LOOK = 0.2
"""Seconds between two looks at whether somebody wants to."""


@dataclass(frozen=True)
class Fault:
    """What went wrong in a world."""

    error: str
    """In a line."""
    place: str = ""
    """Where it was raised, which tells it from others."""
    trace: str = ""
    """The way there through the environment's code."""

    @classmethod
    def of(cls, error: Exception) -> Self:
        """What an environment raised."""
        return cls(one_line(error), f"{type(error).__name__} {where_raised(error)}", users_traceback(error))

    @property
    def kind(self) -> str:
        """The same for faults that are alike."""
        return self.place or self.error


class Host:
    """The worlds of one worker process, made when they are first reset and anew after an error."""

    def __init__(self, task: str, count: int) -> None:
        self.task = task
        self.worlds: list[World | None] = [None] * count

    def describe(self, seed: int) -> Interface:
        """The first world's spaces, costs and time limit."""
        return self._world(0).describe(seed)

    def reset(self, seeds: Mapping[int, int]) -> tuple[dict[int, Floats], dict[int, Fault]]:
        """Begin episodes with these seeds; returns the observations, and what went wrong elsewhere."""
        obs: dict[int, Floats] = {}
        errors: dict[int, Fault] = {}
        for k, seed in seeds.items():
            with self._guarded(k, errors):
                obs[k] = self._world(k).reset(seed)
        return obs, errors

    def step(self, actions: NDArray[Any], costs: CostReader) -> tuple[dict[int, Floats], dict[int, Fault]]:
        """Step all worlds; returns the values of each, and what went wrong elsewhere."""
        values: dict[int, Floats] = {}
        errors: dict[int, Fault] = {}
        for k, action in enumerate(actions):
            with self._guarded(k, errors):
                values[k] = self._world(k).step(action, costs)
        return values, errors

    def render(self, k: int) -> NDArray[np.uint8]:
        """A picture of a world."""
        return self._world(k).render()

    def pictures_a_second(self) -> float:
        """How many the environment means to be shown; 30 unless it says so."""
        return float(self._world(0).env.metadata.get("render_fps") or PICTURES_A_SECOND)

    def _world(self, k: int) -> World:
        world = self.worlds[k]
        if world is None:
            world = self.worlds[k] = World(self.task)
        return world

    @contextlib.contextmanager
    def _guarded(self, k: int, errors: dict[int, Fault]) -> Iterator[None]:
        """Record an error and drop its world. An `UnfitEnvironment` passes: a new episode would not help."""
        try:
            yield
        except UnfitEnvironment:
            raise
        except Exception as error:
            errors[k] = Fault.of(error)
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
        self._busy = False

    def ask(self, *message: Any) -> None:
        """Send a command; `answer` returns a fault if the process is dead."""
        self._busy = True
        with contextlib.suppress(OSError):
            self._connection.send(message)

    def answer(self, timeout: float, began: float, stopping: Callable[[], bool]) -> Any:
        """The reply; or a fault, and then a new process is there, whose worlds are not yet reset.

        Args:
            timeout: seconds after which a process that does not answer counts as dead.
            began: when it was asked, by the monotonic clock.
            stopping: whether somebody wants to stop, which an answer that is late does not hold up.
        """
        fault = Fault("its process died")
        with contextlib.suppress(EOFError, OSError):
            while not self._connection.poll(max(min(LOOK, began + timeout - time.monotonic()), 0.0)):
                waited = time.monotonic() - began
                if waited >= timeout:
                    fault = Fault(f"it did not answer within {timeout:g} seconds (--env-timeout)")
                    raise EOFError
                if waited >= SILENCE and stopping():
                    raise KeyboardInterrupt(
                        f"interrupted while a world of {self.task} did not answer, so that the running epoch is lost;"
                        " `sbtrpo resume` goes on from the last checkpoint"
                    )
            answer = self._connection.recv()
            self._busy = False
            return answer
        self.close()
        self._connection, self._process = start_process(_serve, self.task, len(self.rows))
        self._busy = False
        return fault

    def close(self) -> None:
        """End the process; one that waits for a command closes its worlds first, and no other is waited for."""
        if self._busy:
            self._process.kill()
        stop_process(self._connection, self._process)
