from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from sbtrpo.tools import doctor
from sbtrpo.tools.doctor import EXPECTED_RATIO, Finding, cpu_quota, examine, healthy, report
from sbtrpo.tools.speed import Speed, measure_speed


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def printed(findings: list[Finding]) -> str:
    console = Console(file=io.StringIO(), width=100)
    report(findings, console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def findings_of(check: Any) -> list[Finding]:
    return list(check())


def test_an_examination_names_all_that_a_bug_report_needs(tmp_path: Path) -> None:
    findings = examine(seconds=0, folder=tmp_path / "runs")
    names = by_name(findings)
    for name in ("python", "platform", "sbtrpo", "torch", "mujoco", "numpy", "gymnasium", "cores", "torch threads"):
        assert names[name].value
    for name in ("GPU", "GPU engine", "OpenGL", "MP4 encoder", "run folder"):
        assert name in names
    assert names["torch"].value == torch.__version__
    assert "speed" not in names
    for finding in findings:
        assert bool(finding.remedy) == (finding.status != "ok"), finding
    assert not (tmp_path / "runs").exists()


def test_the_report_shows_every_finding_and_below_it_what_to_do() -> None:
    text = printed([Finding("one", "fine"), Finding("two", "[red] gone", "missing", "pip install 'a[b]'")])
    assert "fine" in text
    assert "[red] gone" in text
    assert "two: pip install 'a[b]'" in text
    assert "Nothing is missing" in printed([Finding("one", "fine")])


def test_what_is_optional_does_not_make_a_machine_unfit() -> None:
    assert healthy([Finding("a", "b", "missing", "c", optional=True), Finding("a", "b", "warning", "c")])
    assert not healthy([Finding("a", "b", "missing", "c")])


def test_a_check_that_fails_is_a_finding_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def ill() -> list[Finding]:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(doctor, "_versions", ill)
    monkeypatch.setattr(doctor, "_graphics", list)
    first = examine(seconds=0, folder=tmp_path)[0]
    assert first.status == "warning"
    assert "no such thing" in first.value


# ---- single checks ---------------------------------------------------------------------------------------------------


def test_missing_graphics_come_with_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "Traceback\nsbtrpo.envs.graphics.NoGraphicsError: there is no OpenGL; run `apt-get install libegl1`\n"
    monkeypatch.setattr(
        doctor.subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 1, stdout="", stderr=said)
    )
    (finding,) = findings_of(doctor._graphics)
    assert finding.value == "there is no OpenGL"
    assert finding.remedy == "run `apt-get install libegl1`"
    assert finding.status == "missing"
    assert finding.optional


def test_a_driver_that_hangs_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: Any, **__: Any) -> None:
        raise subprocess.TimeoutExpired("python", 120)

    monkeypatch.setattr(doctor.subprocess, "run", hang)
    (finding,) = findings_of(doctor._graphics)
    assert finding.status == "warning"
    assert "MUJOCO_GL" in finding.remedy


def test_a_missing_encoder_and_missing_extras_are_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ffmpeg", lambda: None)
    monkeypatch.setattr(doctor, "_installed", lambda name: False)
    (encoder,) = findings_of(doctor._video)
    assert encoder.remedy == "pip install 'sbtrpo[video]'"
    for finding in [encoder, *findings_of(doctor._extras)]:
        assert finding.status == "missing"
        assert finding.optional
        assert finding.remedy.startswith("pip install 'sbtrpo[")


def test_a_missing_requirement_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_installed", lambda name: name != "mujoco")
    finding = by_name(findings_of(doctor._versions))["mujoco"]
    assert (finding.value, finding.status, finding.remedy) == ("not installed", "missing", "pip install mujoco")


@pytest.mark.parametrize(("content", "cores"), [("max 100000", None), ("150000 100000", 1.5), ("nonsense", None)])
def test_a_containers_limit_is_read(content: str, cores: float | None, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(content)
    assert cpu_quota(tmp_path / "cpu.max") == cores
    assert cpu_quota(tmp_path / "absent") is None


def test_fewer_cores_than_the_machine_has_are_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "available_cores", lambda: 2)
    monkeypatch.setattr(doctor.os, "cpu_count", lambda: 8)
    monkeypatch.setattr(doctor, "cpu_quota", lambda: None)
    assert findings_of(doctor._cores)[0].status == "warning"
    monkeypatch.setattr(doctor, "cpu_quota", lambda: 1.5)
    assert "limited to 1.5" in findings_of(doctor._cores)[0].value


def test_a_card_that_torch_cannot_use_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(doctor.engines, "has_driver", lambda: True)
    gpu = by_name(findings_of(doctor._gpu))["GPU"]
    assert gpu.status == "warning"
    assert "pip install" in gpu.remedy


def test_a_gpu_engine_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_installed", lambda name: False)
    monkeypatch.setattr(doctor.engines, "missing", lambda engine: "there is no driver; install it, or use engine=cpu")
    (finding,) = findings_of(doctor._gpu_engine)
    assert (finding.name, finding.value, finding.status) == ("GPU engine", "there is no driver", "missing")
    assert finding.remedy == "install it, or use engine=cpu"
    assert finding.optional


@pytest.mark.parametrize(
    ("code", "out", "err", "status", "words"),
    [
        (0, {"alike": True, "difference": 2e-6, "seconds": 2.0, "ready_seconds": 1.5}, "", "ok", "as on the CPU"),
        (0, {"alike": False, "difference": 0.5, "seconds": 2.0, "ready_seconds": 1.5}, "", "warning", "worlds differ"),
        (-11, None, "", "warning", "ended with status -11"),
        (1, None, "Traceback\nRuntimeError: no such kernel", "warning", "no such kernel"),
    ],
)
def test_the_self_test_of_a_gpu_is_told(
    code: int, out: Any, err: str, status: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = subprocess.CompletedProcess([], code, stdout=f"Warp 1.19\n{json.dumps(out)}\n", stderr=err)
    monkeypatch.setattr(doctor.subprocess, "run", lambda *_, **__: child)
    finding = doctor._gpu_test()
    assert finding.status == status
    assert words in finding.value
    assert finding.optional or status == "ok"


def test_a_gpu_that_hangs_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_: Any, **__: Any) -> None:
        raise subprocess.TimeoutExpired("python", 600)

    monkeypatch.setattr(doctor.subprocess, "run", hang)
    assert doctor._gpu_test().status == "warning"


@pytest.mark.parametrize(("code", "said"), [(0, "570.86\n570.86\n"), (9, "570.86 has failed\n")])
def test_the_driver_is_named(code: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    child = subprocess.CompletedProcess([], code, stdout=said, stderr="")
    monkeypatch.setattr(doctor.subprocess, "run", lambda *_, **__: child)
    assert doctor._driver() == said.splitlines()[0]


def test_a_folder_that_cannot_be_written_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(dir: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refuse)
    (finding,) = doctor._disk(tmp_path / "runs")
    assert finding.status == "missing"
    assert "Permission denied" in finding.value


def test_a_full_disk_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LEAST_DISK", sys.maxsize)
    (finding,) = doctor._disk(tmp_path / "deep" / "runs")
    assert finding.status == "warning"
    assert "--out" in finding.remedy


# ---- speed -----------------------------------------------------------------------------------------------------------


def test_the_speed_test_measures_pool_and_engine() -> None:
    speed = measure_speed("SafetyCarCircle2-v0", worlds=2, seconds=0.0)
    assert speed.pool > 0
    assert speed.physics > 0
    assert speed.ratio == speed.pool / speed.physics


@pytest.mark.parametrize(
    ("ratio", "load", "remedy"),
    [(EXPECTED_RATIO, 9.0, ""), (0.5, 9.0, "other programs are running"), (0.5, 0.0, "report it")],
)
def test_a_slow_pool_is_a_warning_that_knows_about_other_load(
    ratio: float, load: float, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "measure_speed", lambda *_: Speed(1000.0 * ratio, 1000.0))
    monkeypatch.setattr(doctor.os, "getloadavg", lambda: (load, 0.0, 0.0))
    finding = doctor._speed(10.0)
    assert finding.status == ("ok" if not remedy else "warning")
    assert remedy in finding.remedy
    assert f"{ratio:.2f} of the physics alone" in finding.value


def test_a_negative_time_is_refused() -> None:
    with pytest.raises(ValueError, match="0 leaves the speed test out"):
        examine(-1)
