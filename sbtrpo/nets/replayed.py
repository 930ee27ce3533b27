"""The work of a minibatch on a GPU, recorded once and replayed.

Networks are so small that launching the kernels of a minibatch one by one takes several times as long as they do, and
that a single learner's keep the device idle: each waits for the one before. So every recording has a stream of its own,
and those of several learners may be passed on to whoever replays them side by side.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from itertools import islice

import torch
from torch import Tensor

WARM_UP = 3
"""How often work is done as it is before it is recorded: kernels are loaded then."""
TURN = 8
"""Minibatches that one learner queues up before it is the next one's turn."""


class Replayed:
    """Work on rows, given by their numbers: a few minibatches as it is, then as a recorded CUDA graph.

    What the work reads and writes has to stay where it is, and it must not wait for the device. What is no tensor stays
    as it was when it was recorded. Nothing is recorded on a CPU.

    Args:
        work: what is done with each minibatch.
        rows: of a minibatch; the last one of a pass may have fewer, and is worked on as it is.
        device: where all of it is.
    """

    def __init__(self, work: Callable[[Tensor], None], rows: int, device: str) -> None:
        self.work, self.rows, self._calls = work, rows, 0
        self._order = torch.zeros((0, rows), dtype=torch.int64, device=device)
        self._next = torch.zeros(1, dtype=torch.int64, device=device)
        """Of the minibatches in the order, which is worked on by the recording; it counts by itself."""
        self._graph: torch.cuda.CUDAGraph | None = None
        self.company: Replayed | None = None
        """What was last recorded of it and others together."""
        self.stream = torch.cuda.Stream(device) if self._next.is_cuda else None  # type: ignore[no-untyped-call]

    def over(self, order: Tensor) -> None:
        """The work on all rows in this order, a minibatch after the other."""
        pass_on = passed_on.get()
        if pass_on is None:
            for error in side_by_side([(self, order)]):
                if error is not None:
                    raise error
        else:
            pass_on(self, order)

    def minibatches(self, order: Tensor) -> Iterator[None]:
        """The same, one minibatch at a time, in the current stream."""
        whole = len(order) // self.rows
        if len(self._order) != whole:
            self._order, self._graph = order.new_empty((whole, self.rows)), None
        self._order.copy_(order[: whole * self.rows].view(whole, self.rows))
        self._next.zero_()
        for rows in self._order:
            self._one(rows)
            yield
        if len(rest := order[whole * self.rows :]):
            self.work(rest)
            yield

    def _one(self, rows: Tensor) -> None:
        if not self._next.is_cuda or self._calls < WARM_UP:
            self._calls += 1
            self.work(rows)
            self._next += 1
            return
        if self._graph is None:
            self._graph = self._record()
        self._graph.replay()

    def _record(self) -> torch.cuda.CUDAGraph:
        """In the stream in which it is replayed: what a library keeps for each stream is then no other recording's."""
        graph = torch.cuda.CUDAGraph()
        collecting = gc.isenabled()
        gc.disable()  # what is freed during a recording corrupts it
        try:
            graph.capture_begin()
            try:
                self.work(self._order[self._next][0])
                self._next += 1
            finally:
                graph.capture_end()
        finally:
            if collecting:
                gc.enable()
        return graph


passed_on: ContextVar[Callable[[Replayed, Tensor], None] | None] = ContextVar("passed_on", default=None)
"""Who is asked for a pass, where passes of several learners are to go side by side."""


@torch.no_grad()
def side_by_side(passes: Sequence[tuple[Replayed, Tensor]]) -> list[Exception | None]:
    """Passes over orders of rows; what went wrong with each, if anything, while the others went on.

    On a GPU each goes on in its own stream, and they take turns in queueing up.
    """
    under_way = [_Pass(replayed, order) for replayed, order in passes]
    going = under_way
    while going:
        going = [one for one in going if one.turn()]
    for one in under_way:
        one.join()
    return [one.error for one in under_way]


class _Pass:
    """A pass under way, in the stream of its recording, which begins and ends with the current one."""

    error: Exception | None = None

    def __init__(self, replayed: Replayed, order: Tensor) -> None:
        self._stream, self._minibatches = replayed.stream, replayed.minibatches(order)
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(order.device))

    def turn(self) -> bool:
        """Some minibatches; whether there were as many as a turn has."""
        try:
            with torch.cuda.stream(self._stream):
                return sum(1 for _ in islice(self._minibatches, TURN)) == TURN
        except Exception as error:
            self.error = error
            return False

    def join(self) -> None:
        """Let the current stream wait for what is queued up."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
