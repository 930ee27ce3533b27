"""The random generators of the original environments, read word by word, for comparisons with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from sbtrpo.envs.streams import Floats, Ints, Streams


class OriginalStreams(Streams):
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

    @override
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

    @override
    def peek(self, rows: Ints, count: int) -> Floats:
        words = np.stack([self._words(row, count * self._words_per_double) for row in rows])
        if self.generator == "pcg64":
            return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
        high, low = words[:, ::2] >> np.uint64(5), words[:, 1::2] >> np.uint64(6)
        return (high.astype(np.float64) * 67108864.0 + low) / 9007199254740992.0

    @override
    def advance(self, rows: Ints, count: int | Ints) -> None:
        self._next[rows] += np.asarray(count) * self._words_per_double

    @override
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

    @override
    def fork(self, rows: Ints) -> tuple[OriginalStreams, Ints]:
        """A sequential generator has one continuation: itself."""
        return self, rows

    @override
    def tick(self) -> None:
        """The original draws its number of substeps, always 10, at the cost of one double."""
        if self.generator == "mt19937":
            self._owed += 1

    @override
    def state_dict(self) -> dict[str, NDArray[Any]]:
        """Seeds and the number of words consumed since."""
        consumed = self._consumed + self._next + self._owed * self._words_per_double
        return {"seeds": self._seeds.copy(), "consumed": consumed}

    @override
    def load_state_dict(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Read on from where the words were consumed (they are generated anew up to there)."""
        self._seeds[:] = state["seeds"]
        self._owed[:] = 0
        self._consumed[:] = 0
        self._open()
        self._next[:] = state["consumed"]


def original_normal(streams: OriginalStreams, row: int, count: int) -> Floats:
    """`Generator.standard_normal` at the stream's place; most values take one word, a few take more."""
    state = streams.state_dict()

    def source() -> np.random.PCG64:
        bits = np.random.PCG64(int(state["seeds"][row]))
        bits.advance(int(state["consumed"][row]))
        return bits

    drawn, counted = source(), source()
    values = np.random.Generator(drawn).standard_normal(count)
    words = 0
    while counted.state != drawn.state:
        counted.random_raw()
        words += 1
    streams.advance(np.array([row]), words)
    return values
