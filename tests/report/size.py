"""The page of hundreds of runs: `python -m tests.report.size` makes them from copies of committed ones, and measures.

Where there is a Chromium, it says when the page is painted and drawn, on a screen, on a phone, and on a phone whose
processor is four times as slow as this one.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow

from sbtrpo.benchmark.collect import read_table
from sbtrpo.benchmark.plan import Plan
from sbtrpo.report import build
from sbtrpo.report.results import RESULTS
from tests.report import browser

SCREENS = {"screen": (1280, False, 1), "phone": (375, True, 1), "slow phone": (375, True, 4)}
"""Width, whether it is a phone, and how many times as slow."""
MOMENTS = {"first-contentful-paint": "first paint", "headline": "headline", "drawn": "all drawn"}


def copies(seeds: int, epochs: int) -> pyarrow.Table:
    """The paper's benchmark, twelve methods on eight tasks: rows of the committed runs, stretched and scaled."""
    source = read_table(RESULTS / "main_2m.parquet")
    columns = [source[name].to_numpy() for name in ("task", "algo", "run")]
    originals: dict[tuple[str, str], dict[str, list[int]]] = {}
    for row, (task, algo, run) in enumerate(zip(*columns, strict=True)):
        originals.setdefault((task, algo), {}).setdefault(run, []).append(row)
    runs = Plan.from_file("main").replaced({"num_seeds": seeds}).runs()
    own = [list(originals[run.task, run.algo].values()) for run in runs]
    rows = [np.array(found[k % len(found)]) for k, found in enumerate(own)]
    table = source.take(np.concatenate([one[np.arange(epochs) * len(one) // epochs] for one in rows]))
    epoch, scale = np.tile(np.arange(1, epochs + 1), len(runs)), np.random.default_rng(0).uniform(0.7, 1.3, len(runs))
    changed: dict[str, Any] = {
        "run": np.repeat([f"{run.task}/{run.algo}/seed{run.seed}" for run in runs], epochs),
        "seed": np.repeat([run.seed for run in runs], epochs),
        **{name: np.full(len(epoch), count) for name, count in (("epochs", epochs), ("total_steps", 20_000 * epochs))},
        **{"epoch": epoch, "steps": 20_000 * epoch},
        **{name: table[name].to_numpy() * np.repeat(scale, epochs) for name in ("reward", "safe_reward")},
    }
    for name, values in changed.items():
        table = table.set_column(table.column_names.index(name), name, pyarrow.array(values))
    return table


def measure(tab: browser.Page, page: Path, screen: str) -> dict[str, Any]:
    """Milliseconds until something is painted, the headline is, and all is drawn; widths of page and screen."""
    width, phone, slower = SCREENS[screen]
    tab.size(width, 812, phone=phone)
    tab.call("Emulation.setCPUThrottlingRate", rate=slower)
    tab.open(page)
    tab.wait("performance.getEntriesByName('first-contentful-paint').length > 0")
    tab.call("Emulation.setCPUThrottlingRate", rate=1)
    moment = "performance.getEntriesByName('{}')[0].startTime"
    return {
        **{name: tab.evaluate(moment.format(name)) for name in MOMENTS},
        "elements": tab.evaluate("document.getElementsByTagName('*').length"),
        "page": tab.evaluate("document.documentElement.scrollWidth"),
        "screen": width,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Build reports of several sizes, and say how large they are and how fast they open."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[2, 5], help="of each of 96 cells")
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--out", type=Path, help="keep the reports here")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        for seeds in given.seeds:
            table, start = copies(seeds, given.epochs), time.perf_counter()
            page = build(table, (given.out or Path(folder)) / f"{96 * seeds}").index
            size, taken = page.stat().st_size / 1e6, time.perf_counter() - start
            print(f"{96 * seeds} runs of {given.epochs} epochs: {size:.1f} MB, made in {taken:.0f} s", flush=True)
            if browser.executable() is None:
                continue
            for screen in SCREENS:
                with browser.chromium() as tab:
                    seen = [measure(tab, page, screen) for _ in range(5)]
                facts = [f"{seen[0]['elements']} elements, {seen[0]['page']} of {seen[0]['screen']} pixels wide"]
                for name, moment in MOMENTS.items():
                    seconds = [one[name] / 1000 for one in seen]
                    facts.append(f"{moment} {np.median(seconds):.2f} s (at most {max(seconds):.2f})")
                print(f"    {screen}: {', '.join(facts)}", flush=True)


if __name__ == "__main__":
    main()
