"""The work of a minibatch on a GPU, recorded once and replayed.

Networks are so small that launching the kernels of a minibatch one by one takes several times as long as they do.
"""

from __future__ import annotations

import gc
from collections.abc import Callable

import torch
from torch import Tensor

WARM_UP = 3
"""How often work is done as it is before it is recorded: kernels are loaded then."""


class Replayed:
    """Work on rows, given by their numbers: a few times as it is, then as a recorded CUDA graph.

    What the work reads and writes has to stay where it is, and it must not wait for the device. What is no tensor stays
    as it was when it was recorded. Nothing is recorded on a CPU.

    Args:
        work: what is done with each minibatch.
        rows: of a minibatch; one of another size is worked on as it is.
        device: where all of it is.
    """

    def __init__(self, work: Callable[[Tensor], None], rows: int, device: str) -> None:
        self._work, self._rows = work, torch.zeros(rows, dtype=torch.int64, device=device)
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self, rows: Tensor) -> None:
        """Do the work with these rows."""
        if len(rows) != len(self._rows):
            self._work(rows)
            return
        self._rows.copy_(rows)
        if not self._rows.is_cuda or self._calls < WARM_UP:
            self._calls += 1
            self._work(self._rows)
            return
        if self._graph is None:
            self._graph = self._record()
        self._graph.replay()

    def _record(self) -> torch.cuda.CUDAGraph:
        graph, here = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._rows.device)
        beside = torch.cuda.Stream(self._rows.device)  # type: ignore[no-untyped-call]
        beside.wait_stream(here)
        collecting = gc.isenabled()
        gc.disable()  # what is freed during a recording corrupts it
        try:
            with torch.cuda.stream(beside):
                graph.capture_begin()
                try:
                    self._work(self._rows)
                finally:
                    graph.capture_end()
        finally:
            if collecting:
                gc.enable()
        here.wait_stream(beside)
        return graph
