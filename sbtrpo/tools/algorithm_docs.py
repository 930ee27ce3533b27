"""What the catalogue and `TrainConfig` say about the methods, as tables: of `sbtrpo algorithms` and of docs/algorithms.

    python -m sbtrpo.tools.algorithm_docs docs/algorithms            write the tables into the pages
    python -m sbtrpo.tools.algorithm_docs docs/algorithms --check    only say which pages are not current

In a page a table stands between `<!-- generated: name -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import functools
import inspect
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbtrpo.config import TrainConfig
from sbtrpo.config.catalogue import METHODS, QUIRKS, Method

COMMON = ("gamma", "gae_lambda", "hidden", "critic_l2", "max_grad_norm")
"""Settings that have one default for all methods."""


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
    """Every method, and where it is from."""
    return Listing(("algorithm", "what it does", "source"), [(m.name, m.summary, m.source) for m in METHODS.values()])


def settings(method: Method) -> Listing:
    """The settings that a method reads, at fidelity "paper"; the paper's value where that differs."""
    config = TrainConfig(algo=method.name).resolved()
    shown = {*method.settings, *method.paper, *COMMON}
    if method.family == "trust region":
        shown |= {"line_search_first"} | ({"line_search_fraction"} if config.line_search_tries > 1 else set())
    if "first_cost_zero" in method.quirks:  # the methods that read the episodes' cost
        shown.add("cost_limit")
    rows = []
    for name in (field.name for field in dataclasses.fields(TrainConfig)):
        if name in shown:
            default, printed = _text(getattr(config, name)), _text(method.paper.get(name, ""))
            elsewhere = [f"On {task}: {_text(own[name])}." for task, own in method.per_task.items() if name in own]
            rows.append((name, default, printed, " ".join([meanings().get(name, ""), *elsewhere]).strip()))
    return Listing(("setting", "default", "paper's table", "meaning"), rows)


def quirks(method: Method) -> Listing:
    """What the published code of a method does and a textbook would not."""
    return Listing(("setting", "published", "corrected", "what"), [_quirk(name) for name in method.quirks])


def _quirk(name: str) -> tuple[str, ...]:
    quirk = QUIRKS[name]
    return name, _text(quirk.published), _text(quirk.corrected), quirk.what


@functools.cache
def meanings() -> dict[str, str]:
    """The sentences below the fields of `TrainConfig`.

    >>> meanings()["clip"]
    'Ratios count up to 1 ± this.'
    """
    body = ast.parse(inspect.getsource(TrainConfig)).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            found[field.target.id] = " ".join(str(ast.literal_eval(below.value)).split())
    return found


def _text(value: Any) -> str:
    """A value as one would type it.

    >>> _text(0.0003), _text((64, 64)), _text(True)
    ('0.0003', '64 64', 'True')
    """
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


# ---- the pages -----------------------------------------------------------------------------------------------------


def page(method: Method) -> str:
    """The file of a method's page; SB-TRPO's variants share one."""
    return "sb-trpo.md" if method.name.startswith("sb-trpo") else f"{method.name}.md"


def tables() -> dict[str, dict[str, Listing]]:
    """The generated tables of every page: by file, then by name."""
    listed = [(m.name, m.family, m.summary, f"[{page(m)}]({page(m)})") for m in METHODS.values()]
    every = [(*_quirk(name), _concerned(name)) for name in QUIRKS]
    found = {
        "index.md": {
            "methods": Listing(("algorithm", "family", "what it does", "page"), listed),
            "quirks": Listing(("setting", "published", "corrected", "what", "concerns"), every),
        }
    }
    for method in METHODS.values():
        found.setdefault(page(method), {"settings": settings(method), "quirks": quirks(method)})
    return found


def _concerned(quirk: str) -> str:
    """The methods that a quirk concerns, or those that it does not, whichever is shorter."""
    names = [m.name for m in METHODS.values() if quirk in m.quirks]
    others = [name for name in METHODS if name not in names]
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
