"""Random streams, one for each world.

A world's numbers depend on the pool's seed and the world's index alone, never on how many worlds stand beside it or
in which order they are served. Two kinds share one interface:

- `CounterStreams` (the default): SplitMix64, addressed by a key and a position, so that any set of worlds draws any
  number of values in a few array operations.
- `OriginalStreams`: NumPy's own generators, read word by word, in the order in which the original environments consume
  them; for comparing with recordings and old runs.

A draw is a `peek` (look at the next values) followed by an `advance` (consume them), which lets rejection sampling
look at many attempts at once and consume only those it used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

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


def _bits(key: Ints, position: Ints) -> Ints:
    """SplitMix64's output number `position` (from 0) of the sequence that starts at `key`."""
    z = key + (position + 1) * _GAMMA
    z = (z ^ ((z >> 30) & 0x3FFFFFFFF)) * _MIX_1
    z = (z ^ ((z >> 27) & 0x1FFFFFFFFF)) * _MIX_2
    return z ^ ((z >> 31) & 0x1FFFFFFFF)


def _unit(bits: Ints) -> Floats:
    """The upper 53 bits as a fraction in [0, 1)."""
    return ((bits >> 11) & 0x1FFFFFFFFFFFFF).astype(np.float64) * 2.0**-53


class CounterStreams:
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

    def seed(self, seed: int) -> None:
        """Start all streams anew."""
        # World k's key is the k-th output of a stream that starts at the seed's entropy.
        entropy = np.random.SeedSequence(seed, spawn_key=(self._purpose,))
        root = entropy.generate_state(1, np.uint64).view(np.int64)
        self.key[:] = _bits(root, np.arange(len(self.key)))
        self.position[:] = 0

    def peek(self, rows: Ints, count: int) -> Floats:
        """The next `count` values of these worlds."""
        return _unit(_bits(self.key[rows, None], self.position[rows, None] + np.arange(count)))

    def advance(self, rows: Ints, count: int | Ints) -> None:
        """Consume values."""
        self.position[rows] += count

    def integers(self, rows: Ints, high: int) -> Ints:
        """Draw one integer in [0, high) each."""
        return (uniform(self, rows, 1)[:, 0] * high).astype(np.int64)

    def fork(self, rows: Ints) -> tuple[CounterStreams, Ints]:
        """Independent streams, keyed by the next outputs of the world's own."""
        child = CounterStreams.__new__(CounterStreams)
        child.key = _bits(self.key[rows, None], self.position[rows, None] + np.arange(self.parallel)).reshape(-1)
        child.position = np.zeros_like(child.key)
        self.advance(rows, self.parallel)
        return child, np.arange(len(child.key))

    def tick(self) -> None:
        """Nothing to consume."""

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Keys and positions."""
        return {"key": self.key.copy(), "position": self.position.copy()}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from keys and positions."""
        self.key[:] = state["key"]
        self.position[:] = state["position"]


class OriginalStreams:
    """The generators of the original environments: `RandomState(seed + i)` or `default_rng(seed + i)` for world i.

    Both are read as raw words. A navigation task ("mt19937") makes a double of two 32-bit words and an integer of one;
    a velocity task ("pcg64") makes a double of one 64-bit word.
    """

    parallel = 1
    _CHUNK = 4096

    def __init__(self, num_worlds: int, seed: int, generator: Literal["mt19937", "pcg64"]) -> None:
        self.generator = generator
        self._words_per_double = 2 if generator == "mt19937" else 1
        self._buffers: list[NDArray[np.uint64]] = [np.zeros(0, np.uint64)] * num_worlds
        self._next: Ints = np.zeros(num_worlds, np.int64)
        self._seeds: Ints = np.zeros(num_worlds, np.int64)
        self._consumed: Ints = np.zeros(num_worlds, np.int64)  # words before the buffer's first
        self._owed: Ints = np.zeros(num_worlds, np.int64)  # values of steps taken, consumed at the next draw
        self._sources: list[np.random.BitGenerator] = []
        self.seed(seed)

    def seed(self, seed: int) -> None:
        """Start all streams anew, world i from seed + i."""
        most = (2**32 if self.generator == "mt19937" else 2**63) - len(self._seeds)
        if seed > most:
            raise ValueError(
                f"seed must be at most {most} with layout_rng='original' and {len(self._seeds)} worlds, of which world"
                f" i takes seed + i, got {seed}; use a smaller seed or layout_rng='fast'"
            )
        self._seeds[:] = seed + np.arange(len(self._seeds))
        for array in (self._next, self._consumed, self._owed):
            array[:] = 0
        self._open()

    def _open(self) -> None:
        self._sources = [self._source(int(seed)) for seed in self._seeds]
        self._buffers = [np.zeros(0, np.uint64)] * len(self._sources)

    def _source(self, seed: int) -> np.random.BitGenerator:
        if self.generator == "pcg64":
            return np.random.PCG64(seed)
        source = np.random.MT19937()
        key, position = np.random.RandomState(seed).get_state()[1:3]  # type: ignore[index]
        source.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": position}}
        return source

    def _words(self, row: int, count: int) -> NDArray[np.uint64]:
        """The next `count` words of a world, unconsumed; steps taken since the last draw are consumed first."""
        start = self._next[row] + self._owed[row] * self._words_per_double
        self._owed[row] = 0
        buffer = self._buffers[row]
        while start > len(buffer):  # drop whole buffers that steps have consumed
            start -= len(buffer)
            self._consumed[row] += len(buffer)
            buffer = self._sources[row].random_raw(self._CHUNK)
        if start + count > len(buffer):
            fresh = self._sources[row].random_raw(max(self._CHUNK, count))
            self._consumed[row] += start
            buffer, start = np.concatenate([buffer[start:], fresh]), 0
        self._buffers[row], self._next[row] = buffer, start
        return buffer[start : start + count]

    def peek(self, rows: Ints, count: int) -> Floats:
        """The next `count` doubles of these worlds."""
        words = np.stack([self._words(row, count * self._words_per_double) for row in rows])
        if self.generator == "pcg64":
            return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
        high, low = words[:, ::2] >> np.uint64(5), words[:, 1::2] >> np.uint64(6)
        return (high.astype(np.float64) * 67108864.0 + low) / 9007199254740992.0

    def advance(self, rows: Ints, count: int | Ints) -> None:
        """Consume doubles."""
        self._next[rows] += np.asarray(count) * self._words_per_double

    def integers(self, rows: Ints, high: int) -> Ints:
        """`RandomState.randint(0, high)`: words under a mask until one is small enough."""
        mask = np.uint64((1 << (high - 1).bit_length()) - 1)
        drawn = np.zeros(len(rows), np.int64)
        for i, row in enumerate(rows):
            while True:
                value = int(self._words(row, 1)[0] & mask)
                self._next[row] += 1
                if value < high:
                    break
            drawn[i] = value
        return drawn

    def fork(self, rows: Ints) -> tuple[OriginalStreams, Ints]:
        """A sequential generator has one continuation: itself."""
        return self, rows

    def tick(self) -> None:
        """The original draws its number of substeps, always 10, at the cost of one double."""
        if self.generator == "mt19937":
            self._owed += 1

    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Seeds and the number of words consumed since."""
        consumed = self._consumed + self._next + self._owed * self._words_per_double
        return {"seeds": self._seeds.copy(), "consumed": consumed}

    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Read on from where the words were consumed (they are generated anew up to there)."""
        self._seeds[:] = state["seeds"]
        self._owed[:] = 0
        self._consumed[:] = 0
        self._open()
        self._next[:] = state["consumed"]


def make_streams(
    num_worlds: int, seed: int, original: Literal["mt19937", "pcg64"] | None = None
) -> tuple[Streams, Streams]:
    """Streams for layouts, and for what happens within episodes; the original has one for both."""
    if original is not None:
        both = OriginalStreams(num_worlds, seed, original)
        return both, both
    return CounterStreams(num_worlds, seed, purpose=0), CounterStreams(num_worlds, seed, purpose=1)
