"""Examines this machine: versions, cores, GPU, OpenGL, extras and speed, for newcomers and for bug reports.

Every finding that is not as it should be names the command that mends it.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import torch
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sbtrpo.envs import engines
from sbtrpo.envs.physics.cpu import available_cores
from sbtrpo.media.video import ffmpeg
from sbtrpo.tools.speed import measure_speed
from sbtrpo.version import VERSION

Severity: TypeAlias = Literal["ok", "warning", "missing"]

SPEED_TASK, SPEED_WORLDS = "SafetyPointGoal2-v0", 20
EXPECTED_RATIO = 0.7
"""The share of the physics engine's speed that a pool should reach on an idle machine."""
PAPER_STEPS = 2e7
SELF_TEST_SECONDS = 600
"""The most that a test of the GPU engine may take: two, and minutes where kernels are compiled first."""
LEAST_DISK = 2 * 2**30
"""Bytes; a long run with its checkpoints takes a few hundred megabytes."""
_PACKAGES = ("sbtrpo", "torch", "mujoco", "numpy", "gymnasium")
PURPOSES = {
    "gpu": "; for sbtrpo train --engine gpu",
    "onnx": "; for sbtrpo export --format onnx",
    "ray": "; for sweeps on many machines",
    "rliable": "; for comparisons over seeds",
    "video": "; for videos as MP4",
    "wandb": "; for sbtrpo train --wandb",
}
_STYLES = {"ok": "green", "warning": "yellow", "missing": "red"}


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's table."""

    name: str
    value: str
    status: Severity = "ok"
    remedy: str = ""
    """The command that mends it; empty when all is well."""
    optional: bool = False
    """Whether everything else works without it."""


def examine(seconds: float = 10.0, folder: str | Path = "runs") -> list[Finding]:
    """Make all checks. The speed test takes `seconds`; `folder` is where runs would go."""
    if seconds < 0:
        raise ValueError(f"seconds must be at least 0, got {seconds:g}; 0 leaves the speed test out")
    checks: list[Callable[[], Iterable[Finding]]] = [
        _versions, _cores, _memory, _gpu, _graphics, _video, _extras, lambda: _disk(Path(folder)),
    ]  # fmt: skip
    if seconds:
        checks.append(lambda: [_speed(seconds)])
    findings: list[Finding] = []
    for check in checks:
        try:
            findings += check()
        except Exception as error:  # a check that fails is a finding too, and the others still run
            name = getattr(check, "__name__", "a check").strip("_<>")
            findings.append(
                Finding(name, f"could not be examined: {error!r}", "warning", "report this with the lines above")
            )
    return findings


def healthy(findings: Iterable[Finding]) -> bool:
    """Whether nothing that training needs is missing."""
    return not any(finding.status == "missing" and not finding.optional for finding in findings)


def report(findings: Iterable[Finding], console: Console | None = None) -> None:
    """Print the findings as a table, and below it the remedies."""
    console, findings = console or Console(), list(findings)
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("", "what", "found"):
        table.add_column(column, no_wrap=column == "what")
    for finding in findings:
        colour = "dim" if finding.optional and finding.status != "ok" else _STYLES[finding.status]
        word = "optional" if finding.optional and finding.status == "missing" else finding.status
        table.add_row(f"[{colour}]{word}[/{colour}]", escape(finding.name), escape(finding.value))
    console.print(table)
    remedies = [finding for finding in findings if finding.remedy]
    for finding in remedies:
        console.print(f"[bold]{escape(finding.name)}[/bold]: {escape(finding.remedy)}", soft_wrap=True, highlight=False)
    if not remedies:
        console.print("Nothing is missing.")


# ---- the package and its machine -------------------------------------------------------------------------------------


def _versions() -> Iterator[Finding]:
    yield Finding("python", f"{platform.python_version()}, {sys.executable}")
    yield Finding("platform", platform.platform())
    for package in dict.fromkeys([*_PACKAGES, *requirements("")]):
        if not _installed(package):
            yield Finding(package, "not installed", "missing", f"pip install {package}")
        elif package in _PACKAGES:
            known = {"sbtrpo": VERSION, "torch": torch.__version__}  # torch's own tells its build, as +cpu, too
            yield Finding(package, known.get(package) or importlib.metadata.version(package))


def _cores() -> Iterator[Finding]:
    usable, total, quota = available_cores(), os.cpu_count() or 1, cpu_quota()
    text = f"{usable} of {total} usable"
    if quota is not None and quota < usable:
        remedy = (
            f"raise the container's CPU limit, now {quota:g} cores; more threads than that only wait for each other"
        )
        yield Finding("cores", f"{text}, limited to {quota:g}", "warning", remedy)
    elif usable < total:
        yield Finding("cores", text, "warning", "lift the process's affinity (taskset -p, or the scheduler's request)")
    else:
        yield Finding("cores", text)
    yield Finding("torch threads", str(torch.get_num_threads()))


def cpu_quota(path: Path = Path("/sys/fs/cgroup/cpu.max")) -> float | None:
    """How many cores the container may use; None without a limit."""
    try:
        quota, period = path.read_text("utf-8").split()
        return None if quota == "max" else float(quota) / float(period)
    except (OSError, ValueError):
        return None


def _memory() -> Iterator[Finding]:
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        few = total < 4
        remedy = "train with fewer worlds: --num-envs 10" if few else ""
        yield Finding("memory", f"{total:.1f} GiB", "warning" if few else "ok", remedy)


def _gpu() -> Iterator[Finding]:
    if driver := _driver():
        yield Finding("NVIDIA driver", driver)
    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count()))
        memory = torch.cuda.get_device_properties(0).total_memory / 2**30
        yield Finding("GPU", f"{names}, {memory:.0f} GiB, CUDA {torch.version.cuda}")
    elif engines.has_driver():
        remedy = "pip install --force-reinstall torch (a build with CUDA that fits the driver)"
        yield Finding("GPU", "an NVIDIA driver, but this torch cannot use it", "warning", remedy, optional=True)
    else:
        yield Finding("GPU", "none; everything runs on the CPU")
    yield from _gpu_engine()


def _driver() -> str:
    """The version of NVIDIA's driver; empty without one."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return "there is one, but no nvidia-smi" if engines.has_driver() else ""
    command = [program, "--query-gpu=driver_version", "--format=csv,noheader"]
    child = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    said = (child.stdout if child.returncode == 0 else child.stderr or child.stdout).strip().splitlines()
    return said[0] if said else "nvidia-smi says nothing"


def _gpu_engine() -> Iterator[Finding]:
    """Warp, its kernels, and whether worlds on the GPU are those on the CPU."""
    if _installed("warp-lang") and _installed("mujoco-warp"):
        versions = (f"{package} {importlib.metadata.version(package)}" for package in ("warp-lang", "mujoco-warp"))
        yield Finding("Warp", ", ".join(versions))
        yield _kernel_cache()
    if lacking := engines.missing("gpu"):
        problem, _, remedy = lacking.partition("; ")
        yield Finding("GPU engine", problem, "missing", remedy, optional=True)
    else:
        yield _gpu_test()


def _kernel_cache() -> Finding:
    import warp

    warp.config.log_level = warp.LOG_ERROR
    warp.init()
    folder = Path(warp.config.kernel_cache_dir)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    empty = "; the first run compiles kernels for a minute or two" if size == 0 else ""
    return Finding("kernel cache", f"{folder}, {size / 2**20:.0f} MiB{empty}")


def _gpu_test() -> Finding:
    """Step a few worlds in a separate process, because a broken driver may end it."""
    name, command = "GPU engine", [sys.executable, "-m", "sbtrpo.tools.selftest"]
    remedy = "report this with the lines above, and use --engine cpu meanwhile"
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=SELF_TEST_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return Finding(name, f"no step within {SELF_TEST_SECONDS} seconds", "warning", remedy, optional=True)
    if child.returncode:
        last = (child.stderr.strip().splitlines() or [f"ended with status {child.returncode}"])[-1]
        return Finding(name, f"the self-test failed: {last}", "warning", remedy, optional=True)
    result = json.loads(child.stdout.splitlines()[-1])
    text = f"largest difference {result['difference']:.1e}, {result['seconds']:.1f} s"
    if not result["alike"]:
        return Finding(name, f"worlds differ from those on the CPU: {text}", "warning", remedy, optional=True)
    return Finding(
        name, f"can run; worlds as on the CPU ({text}, kernels and pools {result['ready_seconds']:.1f} of it)"
    )


def _graphics() -> Iterator[Finding]:
    """Draw in a separate process, because a broken driver may end it."""
    command = [sys.executable, "-c", "from sbtrpo.envs.view.render import probe; print(probe())"]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        yield Finding("OpenGL", "no picture within two minutes", "warning", "set MUJOCO_GL=osmesa and try again", True)
        return
    if child.returncode == 0:
        yield Finding("OpenGL", f"draws with {child.stdout.strip()}")
        return
    message = re.sub(r"^[\w.]*Error: ", "", (child.stderr.strip().splitlines() or ["no word"])[-1])
    problem, _, remedy = message.partition("; ")
    yield Finding("OpenGL", problem, "missing", remedy or "apt-get install libegl1 libgl1", optional=True)


def _video() -> Iterator[Finding]:
    program = ffmpeg()
    if program is None:
        yield Finding(
            "MP4 encoder", "none; videos become GIFs", "missing", "pip install 'sbtrpo[video]'", optional=True
        )
    else:
        yield Finding("MP4 encoder", Path(program).name)


def requirements(extra: str) -> list[str]:
    """The distributions that this package requires, always (`extra` is empty) or for one of its extras.

    >>> "mujoco" in requirements(""), "mujoco" in requirements("dev")
    (True, False)
    """
    names = []
    for line in importlib.metadata.requires("sbtrpo") or []:
        name, condition = re.match(r"[\w.-]+", line), re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", line)
        if name and (condition[1] if condition else "") == extra:
            names.append(name[0])
    return names


def _extras() -> Iterator[Finding]:
    for extra in importlib.metadata.metadata("sbtrpo").get_all("Provides-Extra") or []:
        if extra == "dev":
            continue
        needed, name = requirements(extra), f"extra {extra}"
        absent = [package for package in needed if not _installed(package)]
        if absent:
            value = f"{', '.join(absent)} not installed{PURPOSES.get(extra, '')}"
            yield Finding(name, value, "missing", f"pip install 'sbtrpo[{extra}]'", optional=True)
        else:
            yield Finding(name, ", ".join(f"{package} {importlib.metadata.version(package)}" for package in needed))


def _installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _disk(folder: Path) -> Iterator[Finding]:
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    name, free = "run folder", shutil.disk_usage(place).free
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        remedy = "name a folder that you may write to: --out FOLDER"
        yield Finding(name, f"{folder} cannot be written ({error.strerror})", "missing", remedy)
        return
    text = f"{folder} can be written, {free / 2**30:.1f} GiB free"
    if free < LEAST_DISK:
        yield Finding(name, text, "warning", "free some space, or name a folder elsewhere: --out FOLDER")
    else:
        yield Finding(name, text)


# ---- speed -----------------------------------------------------------------------------------------------------------


def _speed(seconds: float) -> Finding:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    speed = measure_speed(SPEED_TASK, SPEED_WORLDS, seconds)
    hours = PAPER_STEPS / speed.pool / 3600
    value = (
        f"{speed.pool:,.0f} steps/s in {SPEED_WORLDS} worlds of {SPEED_TASK}, {speed.ratio:.2f} of the physics alone"
        f" (expected: {EXPECTED_RATIO:g} or more); the paper's 2e7 steps in about {hours:.1f} h, updates not counted"
    )
    if speed.ratio >= EXPECTED_RATIO:
        return Finding("speed", value)
    remedy = "run it again; if the ratio stays low, report it with the lines above"
    if load > 0.5 * available_cores():
        remedy = f"other programs are running (load {load:.1f}, {available_cores()} cores); run it again without them"
    return Finding("speed", value, "warning", remedy)
