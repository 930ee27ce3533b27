"""The place of a siege: runs that nothing happened to, and rounds with folders of their own."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tests.faults import judge
from tests.faults.child import Hook
from tests.faults.commands import Command, Ended
from tests.faults.worlds import TROUBLES

SMALL = ["--hidden", "8", "8", "--threads", "1", "--learner-threads", "1"]
FRESH = 0.1
"""The share of commands that are new processes from the first line on."""


@dataclass(frozen=True, eq=False)
class Setup:
    """Settings of a small run."""

    name: str
    settings: str
    epochs: int
    every: int = 1
    """Epochs between the checkpoints of runs that suffer; a kill loses at most so many."""

    def arguments(self, run: Path, every: int | None = None) -> list[str]:
        """The command that trains it."""
        return [
            "train",
            *self.settings.split(),
            *SMALL,
            "--checkpoint-every",
            str(every or self.every),
            "--out",
            str(run),
        ]


SETUPS = [
    Setup("toy", "ToyCorridor-v0 --num-envs 4 --steps-per-epoch 200 --total-steps 1600", 8),
    Setup(
        "critics",
        "ToyCorridor-v0 --algo cpo --num-envs 4 --steps-per-epoch 300 --total-steps 2400 --critic-passes 2",
        8,
        every=3,
    ),
    Setup("goal", "SafetyPointGoal1-v0 --num-envs 4 --steps-per-epoch 1000 --total-steps 6000", 6, every=2),
]
FILES = Setup(
    "files",
    "examples/courier.toml --algo examples/own_method.py:SoftPPO --num-envs 4 --steps-per-epoch 200 --total-steps 1200",
    6,
)
"""A run whose task and method are in files, of which its folder has copies."""
OWN = {
    trouble: Setup(
        trouble,
        f"tests.faults.worlds:{trouble.title()}-v0 --num-envs 4 --steps-per-epoch 64 --total-steps 512 --env-timeout 8",
        8,
    )
    for trouble in TROUBLES
}
GRID = "--tasks ToyCorridor-v0 --algo sb-trpo cpo --num-seeds 1 --num-envs 4 --steps-per-epoch 300 --total-steps 4500"


@dataclass(eq=False)
class Site:
    """What all rounds share."""

    folder: Path
    seed: int = 0
    sabotage: str = ""
    """What is broken on purpose in the commands that suffer, so that the test must fail."""

    @functools.cached_property
    def mounts(self) -> bool:
        """Whether file systems may be mounted here."""
        probe = self.folder / "probe"
        probe.mkdir()
        if not _mount(probe, 64):
            return False
        _unmount(probe)
        return True

    @functools.cache  # noqa: B019
    def whole(self, setup: Setup) -> Path:
        """A run that nothing happened to, with a checkpoint after each epoch."""
        run = self.folder / "whole" / setup.name
        judge.expect_success(self.run(setup.arguments(run, every=1)))
        return run

    @functools.cache  # noqa: B019
    def changes(self, setup: Setup) -> int:
        """How often training changes something in its folder."""
        folder, into = self.folder / "counted", self.folder / "count"
        hook: Hook = ("count_changes", {"folder": str(folder), "into": str(into)})
        judge.expect_success(self.run(setup.arguments(folder / setup.name), [hook]))
        return int(into.read_text())

    @functools.cache  # noqa: B019
    def half(self, setup: Setup) -> Path:
        """A run that was killed in the midst of it."""
        run = self.folder / "half" / setup.name
        at = int(0.6 * self.changes(setup))
        self.run(setup.arguments(run), [strike(run, signal.SIGKILL, at)])
        return run

    @functools.cached_property
    def study(self) -> Path:
        """The folder of a few finished runs."""
        folder = self.folder / "study"
        for setup in SETUPS:
            shutil.copytree(self.whole(setup), folder / setup.name)
        return folder

    @functools.cached_property
    def grid(self) -> tuple[Path, float]:
        """The folder of a benchmark that nothing happened to, and how long it took."""
        begun = time.monotonic()
        judge.expect_success(self.run(["benchmark", *GRID.split(), "--out", str(self.folder / "grid")]))
        return self.folder / "grid", time.monotonic() - begun

    @functools.cache  # noqa: B019
    def reading(self, arguments: tuple[str, ...]) -> tuple[Path, float]:
        """A folder with runs and what a command makes of them, and how long that took."""
        folder = self.folder / arguments[0]
        shutil.copytree(self.study, folder / "runs")
        begun = time.monotonic()
        words = [word.format(runs=folder / "runs", out=folder / "out") for word in arguments]
        judge.expect_success(self.run(words))
        return folder, time.monotonic() - begun

    def run(self, arguments: Sequence[str], hooks: Sequence[Hook] = ()) -> Ended:
        """Run a command to its end, outside any round."""
        (log := self.folder / "log").unlink(missing_ok=True)
        return Command(arguments, hooks, log).wait()


def strike(folder: Path, number: int, at: int, delay: float = 0.0) -> Hook:
    """The hook that sends a signal at a change; at 0, at the start."""
    return "strike", {"folder": str(folder), "number": int(number), "at": int(at), "delay": delay}


@dataclass
class Round:
    """One round: a folder of its own, and numbers that its own number decides."""

    site: Site
    number: int
    folder: Path
    rng: np.random.Generator
    story: list[str] = field(default_factory=list)
    """What happened, command by command."""
    _commands: list[Command] = field(default_factory=list)

    def start(self, arguments: Sequence[str], hooks: Sequence[Hook] = ()) -> Command:
        """Start a command."""
        broken: list[Hook] = [("sabotage", {"what": self.site.sabotage})] if self.site.sabotage else []
        log = self.folder / f"log{len(self._commands)}.txt"
        command = Command(arguments, [*broken, *hooks], log, fresh=bool(self.rng.random() < FRESH))
        self._commands.append(command)
        self.story.append(f"{' '.join(arguments)} with {list(hooks)}")
        return command

    def run(self, arguments: Sequence[str], hooks: Sequence[Hook] = ()) -> Ended:
        """Run a command to its end."""
        ended = self.start(arguments, hooks).wait()
        self.story.append(f"ended with {ended.status}: {ended.output.strip()[-300:]}")
        return ended

    def setup(self) -> Setup:
        """One of the small runs."""
        return SETUPS[self.rng.integers(len(SETUPS))]

    def halved(self, folder: Path | None = None, setup: Setup | None = None) -> tuple[Setup, Path]:
        """A copy of a run that was killed in the midst of it, one of the small ones if none is asked for."""
        setup = setup or self.setup()
        return setup, Path(shutil.copytree(self.site.half(setup), (folder or self.folder) / "run"))

    def finish(self, setup: Setup, run: Path, whole: Path | None = None, hooks: Sequence[Hook] = ()) -> None:
        """Go on with a run to its end, where it must be as if nothing had happened."""
        if (run / "config.toml").exists():
            judge.expect_success(self.run(["resume", str(run)], hooks))
        else:  # it was stopped before it was one
            if run.exists():
                judge.expect_refusal(self.run(["resume", str(run)]), str(run))
                shutil.rmtree(run)
            judge.expect_success(self.run(setup.arguments(run), hooks))
        judge.expect_same_run(run, whole or self.site.whole(setup))

    def end(self) -> None:
        """Leave no process behind."""
        for command in self._commands:
            command.signal(signal.SIGKILL)

    @contextlib.contextmanager
    def disk(self, kilobytes: int) -> Iterator[Path]:
        """A file system of a size; where none may be mounted, an ordinary folder."""
        place = self.folder / "disk"
        place.mkdir()
        mounted = self.site.mounts and _mount(place, kilobytes)
        try:
            yield place
        finally:
            if mounted:
                _unmount(place)

    def change_disk(self, place: Path, options: str) -> None:
        """Give a mounted file system other options."""
        subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)


def _mount(place: Path, kilobytes: int) -> bool:
    if os.name != "posix" or shutil.which("mount") is None:
        return False
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(place)]
    return subprocess.run(command, capture_output=True).returncode == 0


def _unmount(place: Path) -> None:
    subprocess.run(["umount", "-l", str(place)], check=True, capture_output=True)
