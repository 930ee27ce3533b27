"""Random streams, one for each world.

A world's numbers depend on the pool's seed and the world's index alone, never on how many worlds stand beside it or
in which order they are served. Two kinds share one interface:

- `CounterStreams` (the default): SplitMix64, addressed by a key and a position, so that any set of worlds draws any
  number of values in a few array operations.
- `OriginalStreams` (`envs/original.py`): NumPy's own generators, read word by word, in the order in which the original
  environments consume them; for comparing with recordings and old runs.

A draw is a `peek` (look at the next values) followed by an `advance` (consume them), which lets rejection sampling
look at many attempts at once and consume only those it used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# SplitMix64 (Steele, Lea, Flood 2014), its constants as signed 64-bit integers: products wrap around in both NumPy
# and torch, and signed integers are the ones that both of them have.
_GAMMA = 0x9E3779B97F4A7C15 - 2**64
_MIX_1 = 0xBF58476D1CE4E5B9 - 2**64
_MIX_2 = 0x94D049BB133111EB - 2**64


class Streams(Protocol):
    """One random stream for each world."""

    parallel: int
    """How many independent continuations `fork` gives to a world at once."""

    def seed(self, seed: int) -> None:
        """Start all streams anew."""

    def peek(self, rows: Ints, count: int) -> Floats:
        """The next `count` uniform values in [0, 1) of these worlds, (n, count), without consuming them."""

    def advance(self, rows: Ints, count: int | Ints) -> None:
        """Consume `count` values."""

    def integers(self, rows: Ints, high: int) -> Ints:
        """Draw one integer in [0, high) for each of these worlds, (n,)."""

    def fork(self, rows: Ints) -> tuple[Streams, Ints]:
        """Streams for `parallel` trials side by side, and their rows: (n * parallel,), a world's trials in a block."""

    def tick(self) -> None:
        """Tell that every world took a step (the original draws one value then)."""

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Everything, as arrays."""

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue where `state_dict` was taken."""


def uniform(streams: Streams, rows: Ints, count: int) -> Floats:
    """Draw `count` values in [0, 1) for each of these worlds: (n, count)."""
    values = streams.peek(rows, count)
    streams.advance(rows, count)
    return values


def bits(key: Any, position: Any) -> Any:
    """SplitMix64's output number `position` (from 0) of the sequence that starts at `key`."""
    z = key + (position + 1) * _GAMMA
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * _MIX_1
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * _MIX_2
    return z ^ ((z >> 31) & 0x1FFFFFFFF)


def _unit(bits: Ints) -> Floats:
    """The upper 53 bits as a fraction in [0, 1)."""
    return ((bits >> 11) & 0x1FFFFFFFFFFFFF).astype(np.float64) * 2.0**-53


class CounterStreams(Streams):
    """SplitMix64 streams, all worlds at once.

    >>> streams = CounterStreams(num_worlds=3, seed=0)
    >>> uniform(streams, np.arange(3), 2).shape
    (3, 2)
    """

    parallel = 48

    def __init__(self, num_worlds: int, seed: int, purpose: int = 0) -> None:
        self.key: Ints = np.zeros(num_worlds, np.int64)
        self.position: Ints = np.zeros(num_worlds, np.int64)
        self._purpose = purpose
        self.seed(seed)

    @override
    def seed(self, seed: int) -> None:
        # World k's key is the k-th output of a stream that starts at the seed's entropy.
        entropy = np.random.SeedSequence(seed, spawn_key=(self._purpose,))
        root = entropy.generate_state(1, np.uint64).view(np.int64)
        self.key[:] = bits(root, np.arange(len(self.key)))
        self.position[:] = 0

    @override
    def peek(self, rows: Ints, count: int) -> Floats:
        return _unit(bits(self.key[rows, None], self.position[rows, None] + np.arange(count)))

    @override
    def advance(self, rows: Ints, count: int | Ints) -> None:
        self.position[rows] += count

    @override
    def integers(self, rows: Ints, high: int) -> Ints:
        return (uniform(self, rows, 1)[:, 0] * high).astype(np.int64)

    @override
    def fork(self, rows: Ints) -> tuple[CounterStreams, Ints]:
        """Independent streams, keyed by the next outputs of the world's own."""
        child = CounterStreams.__new__(CounterStreams)
        child.key = bits(self.key[rows, None], self.position[rows, None] + np.arange(self.parallel)).reshape(-1)
        child.position = np.zeros_like(child.key)
        self.advance(rows, self.parallel)
        return child, np.arange(len(child.key))

    @override
    def tick(self) -> None:
        """Nothing to consume."""

    @override
    def state_dict(self) -> dict[str, NDArray[Any]]:
        return {"key": self.key.copy(), "position": self.position.copy()}

    @override
    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.key[:] = state["key"]
        self.position[:] = state["position"]


def make_streams(
    num_worlds: int, seed: int, original: Literal["mt19937", "pcg64"] | None = None
) -> tuple[Streams, Streams]:
    """Streams for layouts, and for what happens within episodes; the original has one for both."""
    if original is not None:
        from sbtrpo.envs.original import OriginalStreams  # for comparisons alone

        both = OriginalStreams(num_worlds, seed, original)
        return both, both
    return CounterStreams(num_worlds, seed, purpose=0), CounterStreams(num_worlds, seed, purpose=1)
