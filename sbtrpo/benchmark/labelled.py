"""Tables of numbers with labels, which stay whole however narrow the terminal is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text


@dataclass
class Labelled:
    """Rows that labels name, with numbers; where a row is too long for the terminal, its labels have their own line."""

    title: str
    labels: Sequence[str]
    numbers: Sequence[str]
    rows: list[tuple[Sequence[str], Sequence[str]]] = field(default_factory=list)

    def add(self, labels: Sequence[str], numbers: Sequence[str]) -> None:
        """One more row."""
        self.rows.append((labels, numbers))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        table = self._in_columns()
        if console.measure(table, options=options.update(max_width=10_000)).maximum <= options.max_width:
            yield table
        else:
            yield from self._in_lines()

    def _in_columns(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), title=self.title)
        for name in self.labels:
            table.add_column(name, no_wrap=True)
        for name in self.numbers:
            table.add_column(name, justify="right", no_wrap=True)
        for labels, numbers in self.rows:
            table.add_row(*map(escape, [*labels, *numbers]))
        return table

    def _in_lines(self) -> Iterator[RenderableType]:
        """Under one heading of numbers, each row as a line of what it is and a line of numbers."""
        columns = [self.numbers, *(numbers for _, numbers in self.rows)]
        widths = [max(map(cell_len, column)) for column in zip(*columns, strict=True)]

        def line(cells: Sequence[str]) -> str:
            return "  ".join(" " * (width - cell_len(cell)) + cell for cell, width in zip(cells, widths, strict=True))

        yield Text(f"\n{self.title}", "italic")
        yield Padding(Text(line(self.numbers), "bold"), (0, 0, 0, 2))
        for labels, numbers in self.rows:
            first, *others = zip(self.labels, labels, strict=True)
            yield Text(", ".join([first[1], *(f"{name} {value}" for name, value in others if value)]))
            yield Padding(Text(line(numbers)), (0, 0, 0, 2))
