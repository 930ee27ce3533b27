"""Tables of numbers with labels, which stay whole however narrow the terminal is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text


@dataclass
class Labelled:
    """Rows that labels name, with numbers.

    Where a row is too long for the terminal, its labels have a line of their own, and where that is not enough, each
    number has one, too.
    """

    title: str
    labels: Sequence[str]
    numbers: Sequence[str]
    rows: list[tuple[Sequence[str], Sequence[Text]]] = field(default_factory=list)

    def add(self, labels: Sequence[str], numbers: Sequence[str | Text]) -> None:
        """One more row; a number may have a style."""
        self.rows.append((labels, [Text(number) if isinstance(number, str) else number for number in numbers]))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        table = self._in_columns()
        if console.measure(table, options=options.update(max_width=10_000)).maximum <= options.max_width:
            yield table
        else:
            yield from self._in_lines(options.max_width)

    def _in_columns(self) -> Table:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1), title=escape(self.title))
        for name in self.labels:
            table.add_column(name, no_wrap=True)
        for name in self.numbers:
            table.add_column(name, justify="right", no_wrap=True)
        for labels, numbers in self.rows:
            table.add_row(*map(Text, labels), *numbers)
        return table

    def _in_lines(self, room: int) -> Iterator[RenderableType]:
        """Under one heading of numbers, each row as a line of what it is and a line of numbers; or a line for each."""
        heads = [Text(name, "bold") for name in self.numbers]
        columns = zip(heads, *(numbers for _, numbers in self.rows), strict=True)
        widths = [max(cell.cell_len for cell in column) for column in columns]

        whole = 2 * len(widths) + sum(widths) <= room

        def line(cells: Sequence[Text]) -> Padding:
            padded = [Text(" " * (width - cell.cell_len)) + cell for cell, width in zip(cells, widths, strict=True)]
            return _indented(Text("  ").join(padded))

        yield Text(f"\n{self.title}", "italic")
        yield from [line(heads)] if whole else []
        for labels, numbers in self.rows:
            first, *others = zip(self.labels, labels, strict=True)
            yield Text(", ".join([first[1], *(f"{name} {value}" for name, value in others if value)]))
            named = (_indented(head + Text(" ") + cell) for head, cell in zip(heads, numbers, strict=True))
            yield from [line(numbers)] if whole else named


def _indented(text: Text) -> Padding:
    return Padding(text, (0, 0, 0, 2))
