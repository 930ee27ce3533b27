"""Fills the tables of results into the README and these pages, from the collected runs under `results/`.

`python docs/tables.py` writes them, `python docs/tables.py --check` only says whether they are as the runs have them.
In a page a table stands between two lines, `<!-- table NAME -->` and `<!-- end of table -->`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sbtrpo.benchmark.collect import joined, read_table
from sbtrpo.report.beside import beside, glance
from sbtrpo.report.render import Table, markdown
from sbtrpo.report.runs import Runs, read_runs

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "sbtrpo" / "benchmark" / "results"


@dataclass(frozen=True)
class Block:
    """A table of a page, and the collected runs that it is made of."""

    page: str
    name: str
    make: Callable[[Runs], Table]
    sources: Sequence[str]

    def text(self) -> str:
        """The rows as Markdown, without title and caption: the page says what it is."""
        runs = read_runs(joined([read_table(RESULTS / f"{source}.parquet") for source in self.sources]))
        lines = markdown(self.make(runs)).splitlines()
        return "\n".join(line for line in lines if line.startswith("|"))


NAMES = {"SB-TRPO": "as published, here", "SB-TRPO, annealed": "400 worlds", "SB-TRPO, growing": "growing"}
LONG = ("published", "large_batches", "growing")
BLOCKS = (
    Block("README.md", "glance", partial(glance, names=NAMES), LONG),
    Block("docs/batches.md", "beside", partial(beside, names=NAMES), LONG),
)


def filled(page: str, name: str, rows: str) -> str:
    """The page with these rows between the two lines."""
    pattern = re.compile(rf"(<!-- table {re.escape(name)} -->\n).*?(\n<!-- end of table -->)", re.DOTALL)
    changed, count = pattern.subn(lambda match: match[1] + rows + match[2], page)
    if count != 1:
        raise ValueError(f"the page has {count} places for the table {name}; it needs one")
    return changed


def main() -> int:
    """Write, or look."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where a page is not up to date")
    check = parser.parse_args().check
    stale = []
    for block in BLOCKS:
        path = ROOT / block.page
        before = path.read_text(encoding="utf-8")
        after = filled(before, block.name, block.text())
        if after != before:
            stale.append(f"{block.page}: {block.name}")
            if not check:
                path.write_text(after, encoding="utf-8")
    print("\n".join(stale) or "all tables are as the runs have them")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
