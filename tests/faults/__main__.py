"""`python -m tests.faults`: rounds of faults, and a table of what was injected, survived and lost."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from sbtrpo.errors import where_raised
from tests.faults.commands import Hanging
from tests.faults.judge import Lost
from tests.faults.kinds import KINDS, Missed, NotRun, schedule
from tests.faults.site import Round, Site

ATTEMPTS = 5
"""To hit a command before it is through."""
OUTCOMES = ("survived", "lost", "not run")


def play(site: Site, number: int) -> tuple[str, str, str]:
    """Play a round; returns its kind, its outcome, and what there is to say."""
    kinds = schedule(site.seed)
    kind = kinds[number % len(kinds)]
    for attempt in range(ATTEMPTS):
        folder = site.folder / f"round{number}-{attempt}"
        folder.mkdir()
        r = Round(site, number, folder, np.random.default_rng([site.seed, 2, number, attempt]))
        try:
            kind.suffer(r)
        except Missed:
            continue
        except NotRun as reason:
            return kind.name, "not run", str(reason)
        except Exception as loss:  # whatever it is, it is no survival
            why = str(loss) if isinstance(loss, Lost | Hanging) else f"{loss!r} {where_raised(loss)}"
            return kind.name, "lost", "\n    ".join([why, *r.story])
        finally:
            r.end()
            shutil.rmtree(folder, ignore_errors=True)
        return kind.name, "survived", ""
    return kind.name, "not run", f"the command was through before the fault came, {ATTEMPTS} times"


def main() -> int:
    """Play rounds; returns 1 if something was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--rounds", type=int, default=len(schedule(0)), help="how many")
    parser.add_argument("--round", type=int, nargs="+", help="these alone")
    parser.add_argument("--seed", type=int, default=0, help="of all that is random")
    parser.add_argument("--json", type=Path, help="also write the counts to this file")
    parser.add_argument("--sabotage", choices=["row", "episodes", "weights"], default="", help="lose this on purpose")
    given = parser.parse_args()
    numbers = range(given.rounds) if given.round is None else given.round
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    counts: dict[str, Counter[str]] = {kind.name: Counter() for kind in KINDS}
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:
        site = Site(Path(folder).resolve(), given.seed, given.sabotage)
        for number in numbers:
            started = time.monotonic()
            kind, outcome, words = play(site, number)
            counts[kind][outcome] += 1
            print(
                f"round {number:3d}  {kind:42s} {outcome:9s} {time.monotonic() - started:6.1f} s  {words}", flush=True
            )
    print()
    print(table(counts))
    print(f"seed {given.seed}, {time.monotonic() - begun:.0f} s")
    if given.json is not None:
        given.json.write_text(
            json.dumps({kind: {o: count[o] for o in OUTCOMES} for kind, count in counts.items()}, indent=1) + "\n"
        )
    return int(any(count["lost"] for count in counts.values()))


def table(counts: dict[str, Counter[str]]) -> str:
    """The counts in Markdown."""
    lines = ["| fault | injected | survived | lost | not run |", "|---|---:|---:|---:|---:|"]
    total = sum(counts.values(), Counter[str]())
    for name, count in [*counts.items(), ("**all**", total)]:
        injected = count["survived"] + count["lost"]
        if count:
            lines.append(f"| {name} | {injected} | {count['survived']} | {count['lost']} | {count['not run']} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
