"""What the methods say about themselves, as tables: of `sbtrpo algorithms` and of docs/algorithms.

    python -m sbtrpo.tools.algorithm_docs docs/algorithms            write the tables into the pages
    python -m sbtrpo.tools.algorithm_docs docs/algorithms --check    only say which pages are not current

In a page a table stands between `<!-- generated: name -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbtrpo.config import catalogue
from sbtrpo.config.catalogue import Entry
from sbtrpo.config.run import RunSettings
from sbtrpo.config.settings import Declared, declared

OF_THE_RUN = ("gamma", "hidden")
"""Settings of the run that shape what a method computes; beside those for which it has a default of its own."""


@dataclass(frozen=True)
class Listing:
    """A table of text."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]

    def markdown(self) -> str:
        """As GitHub shows it, the first column as code."""
        lines = [self.columns, ("---",) * len(self.columns)]
        lines += [(f"`{first}`", *others) for first, *others in self.rows]
        return "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)


def methods() -> Listing:
    """Every method that has a name, and where it is from."""
    return Listing(
        ("algorithm", "what it does", "source"), [(e.name, e.summary, e.source) for e in catalogue.entries()]
    )


def settings(entry: Entry) -> Listing:
    """The settings that a method reads, at fidelity "paper"; the paper's value where that differs."""
    own = entry.implementation.run_defaults
    run = {name: item for name, item in declared(RunSettings).items() if name in (*OF_THE_RUN, *own)}
    usual = {**entry.run_defaults, **entry.settings.defaults("", "paper")}
    shown = {n: s for n, s in declared(entry.settings).items() if not s.is_quirk or s.rule.paper is not None}
    rows = []
    for name, item in {**run, **shown}.items():
        elsewhere = [f"On {task}: {_text(of[name])}." for task, of in entry.settings.per_task.items() if name in of]
        printed = "" if item.rule.paper is None else _text(item.rule.paper)
        meaning = " ".join([item.meaning, *elsewhere]).strip()
        rows.append((name, _text(usual[name]), printed, meaning))
    return Listing(("setting", "default", "paper's table", "meaning"), rows)


def quirks(entry: Entry) -> Listing:
    """What the published code of a method does and a textbook would not."""
    rows = [_quirk(item) for item in declared(entry.settings).values() if item.is_quirk]
    return Listing(("setting", "published", "corrected", "what"), rows)


def _quirk(item: Declared) -> tuple[str, ...]:
    return item.name, _text(item.default), _text(item.rule.corrected), item.rule.quirk


def _text(value: Any) -> str:
    """A value as one would type it.

    >>> _text(0.0003), _text((64, 64)), _text(True), _text(None)
    ('0.0003', '64 64', 'True', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


# ---- the pages -----------------------------------------------------------------------------------------------------


def page(entry: Entry) -> str:
    """The file of a method's page; SB-TRPO's variants share one."""
    return "sb-trpo.md" if entry.name.startswith("sb-trpo") else f"{entry.name}.md"


def tables() -> dict[str, dict[str, Listing]]:
    """The generated tables of every page: by file, then by name."""
    entries = [catalogue.method(name) for name in catalogue.BUILT_IN]
    listed = [(e.name, e.family, e.summary, f"[{page(e)}]({page(e)})") for e in entries]
    concerned: dict[tuple[str, ...], list[str]] = {}
    for entry in entries:
        for row in quirks(entry).rows:
            concerned.setdefault(row, []).append(entry.name)
    every = [(*row, _whom(names)) for row, names in concerned.items()]
    pages = {
        "index.md": {
            "methods": Listing(("algorithm", "family", "what it does", "page"), listed),
            "quirks": Listing(("setting", "published", "corrected", "what", "concerns"), every),
        }
    }
    for entry in entries:
        pages.setdefault(page(entry), {"settings": settings(entry), "quirks": quirks(entry)})
    return pages


def _whom(names: Sequence[str]) -> str:
    """These methods, or all but the others, whichever is shorter."""
    others = [name for name in catalogue.BUILT_IN if name not in names]
    if len(others) < len(names):
        return f"all but {', '.join(others)}" if others else "all"
    return ", ".join(names)


def fill(text: str, generated: dict[str, Listing]) -> str:
    """A page with its tables renewed.

    >>> fill("<!-- generated: a --><!-- end -->", {"a": Listing(("x", "y"), [("1", "2")])}).splitlines()[1:3]
    ['| x | y |', '| --- | --- |']
    """
    for name, listing in generated.items():
        start, end = f"<!-- generated: {name} -->", "<!-- end -->"
        before, opened, rest = text.partition(start)
        _, closed, after = rest.partition(end)
        if not (opened and closed):
            raise ValueError(f"a page lacks the place for its table: {start} ... {end}")
        text = f"{before}{start}\n{listing.markdown()}\n{end}{after}"
    return text


def main(args: Sequence[str] | None = None) -> int:
    """Renew the tables in a folder's pages, or check that they are current; returns the exit code."""
    parser = argparse.ArgumentParser(prog="sbtrpo.tools.algorithm_docs", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the pages are")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a page is not current")
    options = parser.parse_args(args)
    stale = []
    for name, generated in tables().items():
        path = options.folder / name
        text = path.read_text(encoding="utf-8")
        if (renewed := fill(text, generated)) != text:
            stale.append(name)
            if not options.check:
                path.write_text(renewed, encoding="utf-8")
    if options.check and stale:
        how = f"python -m sbtrpo.tools.algorithm_docs {options.folder}"
        print(f"tables are not current in {', '.join(stale)}; run: {how}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
