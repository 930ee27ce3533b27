"""The kinds of faults: what a round does to a command, and what must hold afterwards."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.faults import judge
from tests.faults.child import Hook
from tests.faults.commands import Ended
from tests.faults.judge import Lost
from tests.faults.site import FILES, GRID, OWN, SETUPS, Round, Setup, strike

GOAL = SETUPS[2]
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
INTERRUPTED = 130


class NotRun(Exception):  # noqa: N818
    """A fault that cannot be brought about here; the message says why."""


class Missed(Exception):  # noqa: N818
    """The command was through before the fault came; the round is played again with other numbers."""


@dataclass(frozen=True)
class Kind:
    """A kind of fault."""

    name: str
    rounds: int
    """Of 208."""
    suffer: Callable[[Round], None]


KINDS: list[Kind] = []


def kind(name: str, rounds: int) -> Callable[[Callable[[Round], None]], Callable[[Round], None]]:
    """Add a kind of fault."""

    def add(suffer: Callable[[Round], None]) -> Callable[[Round], None]:
        KINDS.append(Kind(name, rounds, suffer))
        return suffer

    return add


def schedule(seed: int) -> list[Kind]:
    """The kind of each round of a whole siege, in an order that the seed decides; then it begins anew."""
    kinds = [kind for kind in KINDS for _ in range(kind.rounds)]
    return [kinds[k] for k in np.random.default_rng([seed, 1]).permutation(len(kinds))]


# ---- signals -------------------------------------------------------------------------------------------------------


def _moment(r: Round, changes: int) -> tuple[int, float]:
    """At one of so many changes to the folder, or shortly after it."""
    return int(r.rng.integers(1, changes + 1)), float(r.rng.choice([0.0, r.rng.uniform(0, 0.05)]))


def _expect_struck(ended: Ended, number: int, ray: bool = False) -> None:
    """By its signal; Ctrl-C lets a command end by itself, in its last epoch with success. Ray exits where told to."""
    if ended.status == 0 and number != signal.SIGINT:
        raise Missed
    expected = {INTERRUPTED, 0} if number == signal.SIGINT else {-number, *([number] if ray else [])}
    if ended.status not in expected:
        raise Lost(f"not ended by {signal.Signals(number).name}: {ended.words}")
    if "Traceback" in ended.output:
        raise Lost(f"more than a sentence: {ended.words}")


def _strike_train(r: Round, number: int) -> None:
    setup, run = r.setup(), r.folder / "run"
    ended = r.run(setup.arguments(run), [strike(run, number, *_moment(r, r.site.changes(setup)))])
    _expect_struck(ended, number)
    judge.expect_kept(run, 0 if number == signal.SIGINT else setup.every)
    r.finish(setup, run)


def _strike_resume(r: Round, number: int) -> None:
    setup, run = r.halved()
    before = judge.saved(run)
    for _ in range(r.rng.integers(1, 3)):
        unsaved = judge.rows(run) - before
        ended = r.run(["resume", str(run)], [strike(run, number, *_moment(r, int(0.4 * r.site.changes(setup))))])
        _expect_struck(ended, number)
        if number == signal.SIGINT:  # before its first epoch it has nothing to save, and leaves what it came upon
            judge.expect_kept(run, 0 if "stopped after epoch" in ended.output else unsaved)
        else:
            judge.expect_kept(run, setup.every)
        if judge.saved(run) < before:
            raise Lost(f"the run fell back from epoch {before} to {judge.saved(run)}")
        before = judge.saved(run)
    r.finish(setup, run)


for _number, _name in zip(SIGNALS, ("kill -9", "kill -15", "Ctrl-C"), strict=True):
    kind(f"train, {_name}", 13)(functools.partial(_strike_train, number=_number))
    kind(f"resume, {_name}", 5)(functools.partial(_strike_resume, number=_number))


@kind("train, killed in the midst of a write", 8)
def _tear(r: Round) -> None:
    setup, run = r.setup(), r.folder / "run"
    sizes = sorted({path.stat().st_size for path in r.site.whole(setup).rglob("*") if path.is_file()} - {0})
    size = int(r.rng.integers(sizes[r.rng.integers(len(sizes))]))
    ended = r.run(setup.arguments(run), [("limit_files", {"size": max(64, size), "deadly": True})])
    _expect_struck(ended, signal.SIGXFSZ)
    judge.expect_kept(run, setup.every)
    r.finish(setup, run)


def _strike_benchmark(r: Round, *launcher: str) -> None:
    whole, seconds = r.site.grid
    root = r.folder / "runs"
    arguments = ["benchmark", *GRID.split(), "--out", str(root), *launcher]
    number, workers = int(r.rng.choice(SIGNALS)), r.rng.random() < 0.5
    command, moment = r.start(arguments), time.monotonic() + float(r.rng.uniform(0.2, 0.9)) * seconds
    while command.running and time.monotonic() < moment:
        time.sleep(0.01)
    if not command.running:
        judge.expect_success(command.wait())
        raise Missed
    if workers and (children := command.children()):
        os.kill(children[r.rng.integers(len(children))], signal.SIGKILL)
        ended = command.wait()  # it tries again
    else:
        command.signal(number)
        ended = command.wait()
        _expect_struck(ended, number, ray="ray" in launcher)
    r.story.append(f"ended with {ended.status}")
    for run in root.glob("*/*/seed*"):
        judge.expect_kept(run, 1)
    judge.expect_success(r.run(arguments))
    for run in whole.glob("*/*/seed*"):
        judge.expect_nobody(root / run.relative_to(whole))
        judge.expect_same_run(root / run.relative_to(whole), run)


@kind("benchmark, local: it or a worker killed", 12)
def _strike_local(r: Round) -> None:
    _strike_benchmark(r)


@kind("benchmark, Ray: it or a worker killed", 4)
def _strike_ray(r: Round) -> None:
    if importlib.util.find_spec("ray") is None:
        raise NotRun("Ray is not installed")
    _strike_benchmark(r, "--launcher", "ray", "--address", "local")


# ---- commands that read runs ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reader:
    """A command that reads runs, and what it writes."""

    name: str
    arguments: tuple[str, ...]
    """`{runs}` and `{out}` stand for folders."""
    writes: str
    """How the names of its files below the runs' folder begin."""


READERS = [
    Reader("evaluate", ("evaluate", "{runs}/toy", "--episodes", "40"), "toy/evaluations"),
    Reader("collect", ("collect", "{runs}"), "results"),
    Reader("report", ("report", "{runs}", "--out", "{out}"), "-"),
]


def _read(r: Round, reader: Reader, folder: Path, *hooks: Hook) -> Ended:
    return r.run([word.format(runs=folder / "runs", out=folder / "out") for word in reader.arguments], hooks)


def _strike_reader(r: Round, reader: Reader) -> None:
    runs = Path(shutil.copytree(r.site.study, r.folder / "runs"))
    before, (whole, seconds) = judge.contents(runs), r.site.reading(reader.arguments)
    sizes = [
        len(content) for name, content in judge.contents(whole).items() if name.removeprefix("runs/") not in before
    ]
    if r.rng.random() < 0.5:
        number = int(r.rng.choice(SIGNALS))
        hook = strike(r.folder, number, 0, float(r.rng.uniform(0.01, 1.0)) * seconds)
    else:
        number, size = signal.SIGXFSZ, int(r.rng.integers(sizes[r.rng.integers(len(sizes))]))
        hook = ("limit_files", {"size": size, "deadly": True})
    _expect_struck(_read(r, reader, r.folder, hook), number)
    judge.expect_unchanged(runs, before, reader.writes)
    judge.expect_readable(runs, unfinished=True)
    judge.expect_success(_read(r, reader, r.folder))
    for name in ("runs", "out"):
        judge.expect_unchanged(r.folder / name, judge.contents(whole / name))


for _reader in READERS:
    kind(f"{_reader.name}, killed", 7)(functools.partial(_strike_reader, reader=_reader))


# ---- disks ---------------------------------------------------------------------------------------------------------


def _size(folder: Path) -> int:
    """Kilobytes that a folder takes on a disk of its own."""
    return sum(4 * -(-path.stat().st_size // 4096) if path.is_file() else 4 for path in folder.rglob("*"))


@kind("disk full", 14)
def _fill_disk(r: Round) -> None:
    """While a run trains, or while a command writes what it found in runs."""
    if r.rng.random() < 0.3:
        return _fill_disk_of_reader(r, READERS[r.rng.integers(len(READERS))])
    setup = r.setup()
    space = int(r.rng.integers(8, _size(r.site.whole(setup)) - 8))
    with r.disk(space) as place:
        run = place / "run"
        hooks: list[Hook] = [] if r.site.mounts else [("limit_files", {"size": 1 + space * 16})]
        ended = r.run(setup.arguments(run), hooks)
        if ended.status == 0:  # with checkpoints that are further apart there is more room
            raise Missed
        judge.expect_refusal(ended, str(place))
        judge.expect_kept(run, setup.every)
        if r.site.mounts:
            r.change_disk(place, "size=64m")
        r.finish(setup, run)
    return None


def _fill_disk_of_reader(r: Round, reader: Reader) -> None:
    whole, _ = r.site.reading(reader.arguments)
    needed = _size(r.site.study)
    free = int(r.rng.integers(0, max(1, _size(whole) - needed)))
    with r.disk(needed + 4 + free) as place:
        runs = Path(shutil.copytree(r.site.study, place / "runs"))
        before = judge.contents(runs)
        hooks: list[Hook] = [] if r.site.mounts else [("limit_files", {"size": 1 + free * 16})]
        ended = _read(r, reader, place, *hooks)
        if ended.status == 0 and "is not written" not in ended.output:
            raise Missed
        judge.expect_refusal(dataclasses.replace(ended, status=2), str(place))
        judge.expect_unchanged(runs, before, reader.writes)
        if r.site.mounts:
            r.change_disk(place, "size=64m")
        judge.expect_success(_read(r, reader, place))
        for name in ("runs", "out"):
            judge.expect_unchanged(place / name, judge.contents(whole / name))


@kind("read-only folder", 8)
def _forbid_writing(r: Round) -> None:
    with r.disk(64 * 1024) as place:
        setup, run = r.halved(place / "runs")
        if r.site.mounts:
            r.change_disk(place, "ro")
        else:
            _set_writable(run, False)
        before = judge.contents(run)
        judge.expect_refusal(r.run(["resume", str(run)]), str(run))
        if r.rng.random() < 0.5 and judge.saved(run):
            ended = r.run(["evaluate", str(run), "--episodes", "20"])
            judge.expect_success(ended)
            judge.expect_refusal(dataclasses.replace(ended, status=2), str(run / "evaluations"))
        else:
            judge.expect_refusal(r.run(["collect", str(run.parent)]), str(run.parent))
        judge.expect_success(r.run(["report", str(run.parent), "--out", str(r.folder / "out")]))
        judge.expect_unchanged(run, before)
        if r.site.mounts:
            r.change_disk(place, "rw")
        else:
            _set_writable(run, True)
        r.finish(setup, run)


def _set_writable(folder: Path, writable: bool) -> None:
    if not writable and os.geteuid() == 0:
        raise NotRun("the administrator may write everywhere, and no file system may be mounted")
    for path in (folder, *folder.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222 | (0o200 if writable else 0))


# ---- damaged files -------------------------------------------------------------------------------------------------


def _truncate(r: Round, path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: r.rng.integers(len(content))])


def _flip(r: Round, path: Path) -> None:
    """A bit, but none of `total_steps`: whoever changes that asks for a longer or a shorter run."""
    content = bytearray(path.read_bytes())
    line = content.find(b"total_steps") if path.suffix == ".toml" else -1
    places = [k for k in range(len(content)) if line < 0 or not line <= k <= content.index(b"\n", line)]
    content[places[r.rng.integers(len(places))]] ^= 1 << int(r.rng.integers(8))
    path.write_bytes(content)


def _damage(r: Round, names: tuple[str, ...], harm: Callable[[Round, Path], None], of: Setup | None = None) -> None:
    setup, run = r.halved(setup=of)
    newest = judge.saved(run)
    files = sorted(path for name in names for path in run.glob(name) if path.stat().st_size)
    path = files[r.rng.integers(len(files))]
    whole = path.read_bytes()
    harm(r, path)
    r.story.append(f"damaged {path.relative_to(run)}")
    before = judge.contents(run)
    ended = r.run(["resume", str(run)])
    if ended.status == 0:
        if path.parent.name == f"epoch-{newest:06d}" and str(path.parent) not in ended.output:
            raise Lost(f"{path.parent} is damaged, and nobody says so: {ended.words}")
        judge.expect_same_run(run, r.site.whole(setup), damaged=[path])
        return
    inside = path.parent.name == "episodes.parquet" or path.parent.parent.name == "checkpoints"
    judge.expect_refusal(ended, str(path.parent if inside else path))
    judge.expect_unchanged(run, before)
    path.write_bytes(whole)
    r.finish(setup, run)


CHECKPOINTS, TABLES = ("checkpoints/*/*",), ("metrics.csv", "timing.csv", "episodes.parquet/*")
SETTINGS, SOURCES = ("config.toml", "run.json"), ("task.toml", "method.py")
for _harm, _name in ((_truncate, "truncated"), (_flip, "bit-flipped")):
    kind(f"checkpoint {_name}", 8)(functools.partial(_damage, names=CHECKPOINTS, harm=_harm))
    kind(f"table {_name}", 10)(functools.partial(_damage, names=TABLES, harm=_harm))
    kind(f"settings {_name}", 4)(functools.partial(_damage, names=SETTINGS, harm=_harm))
    kind(f"task or method {_name}", 4)(functools.partial(_damage, names=SOURCES, harm=_harm, of=FILES))


# ---- clocks and writers --------------------------------------------------------------------------------------------


@kind("clock jumps", 8)
def _shift_clock(r: Round) -> None:
    """In the running command, and between two of them: files then come from the future or from long ago."""
    setup, run = r.setup(), r.folder / "run"

    def jump() -> Hook:
        return "shift_clock", {
            "seconds": float(r.rng.choice([-1, 1]) * 10 ** r.rng.uniform(1, 9)),
            "after": int(r.rng.integers(50)),
        }

    number = int(r.rng.choice(SIGNALS))
    ended = r.run(setup.arguments(run), [jump(), strike(run, number, *_moment(r, r.site.changes(setup)))])
    _expect_struck(ended, number)
    seconds = time.time() + float(r.rng.choice([-1, 1]) * 10 ** r.rng.uniform(1, 8.5))
    for path in run.rglob("*"):
        os.utime(path, (seconds, seconds))
    r.finish(setup, run, hooks=[jump()])


@kind("two writers", 10)
def _write_twice(r: Round) -> None:
    if r.rng.random() < 0.5:
        setup, run = r.setup(), r.folder / "run"
        first = r.start(setup.arguments(run))
    else:
        setup, run = r.halved()
        first = r.start(["resume", str(run)])
    time.sleep(float(r.rng.choice([0.0, r.rng.uniform(0, 1.5)])))
    again = (run / "config.toml").exists() and r.rng.random() < 0.7
    second = r.start(["resume", str(run)] if again else setup.arguments(run))
    for ended in (first.wait(), second.wait()):
        r.story.append(f"ended with {ended.status}: {ended.output[-300:]}")
        if ended.status != 0:
            judge.expect_refusal(ended, str(run))
    r.finish(setup, run)


# ---- simulators ----------------------------------------------------------------------------------------------------


@kind("NaN in the simulator", 6)
def _spoil(r: Round) -> None:
    """A run with the fault that is killed and resumed is one with the fault that is not."""
    hook: Hook = ("spoil_world", {"epoch": int(r.rng.integers(1, GOAL.epochs + 1)), "world": int(r.rng.integers(4))})
    whole, run = r.folder / "whole", r.folder / "run"
    judge.expect_success(r.run(GOAL.arguments(whole, every=1), [hook]))
    if judge.last_row(whole)["faults"] != 1:
        raise Lost(f"metrics.csv counts {judge.last_row(whole)['faults']} faults and not 1")
    r.run(GOAL.arguments(run), [hook, strike(run, signal.SIGKILL, *_moment(r, r.site.changes(GOAL)))])
    judge.expect_kept(run, GOAL.every)
    r.finish(GOAL, run, whole, [hook])


def _trouble(r: Round, trouble: str) -> None:
    """Foreign worlds begin anew when a run resumes: it is the run that resumes at the same place, to the last byte."""
    setup, run, twin = OWN[trouble], r.folder / "run", r.folder / "twin"
    whole = r.site.whole(setup)
    if judge.last_row(whole)["faults"] < 1:
        raise Lost("metrics.csv counts no fault")
    r.run(setup.arguments(run), [strike(run, signal.SIGKILL, *_moment(r, r.site.changes(setup)))])
    judge.expect_kept(run, setup.every)
    judge.expect_beginning(run, whole, judge.saved(run))
    if not (run / "config.toml").exists():
        return
    shutil.copytree(run, twin)
    judge.expect_success(r.run(["resume", str(twin)]))
    judge.expect_beginning(twin, whole, judge.saved(run))
    r.finish(setup, run, twin)


for _what, _rounds in (("raises", 4), ("exits", 4), ("hangs", 3)):
    kind(f"own environment {_what}", _rounds)(functools.partial(_trouble, trouble=_what))
