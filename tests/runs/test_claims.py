"""No two processes work on one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sbtrpo.runs import claims
from sbtrpo.runs.claims import STALE_SECONDS, Busy, Claim, holder


def claim_of(folder: Path, pid: int, host: str | None = None) -> Path:
    """A claim as another process would leave it."""
    path = folder / f"claim-{pid}.json"
    path.write_text(json.dumps({"host": claims._here() if host is None else host, "pid": pid}))
    return path


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_claimed_run_cannot_be_claimed_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Claim(run):
        assert str(os.getpid()) in str(holder(run))
        with pytest.raises(Busy, match=f"is being worked on by process {os.getpid()}"), Claim(run):
            pass
        assert holder(run) is not None
    assert holder(run) is None
    with Claim(run):
        pass
    assert not list(run.iterdir())


def test_the_claim_of_a_process_that_is_gone_does_not_count(tmp_path: Path) -> None:
    claim_of(tmp_path, dead_process())
    with Claim(tmp_path):
        assert str(os.getpid()) in str(holder(tmp_path))


def test_the_claim_of_another_machine_counts_until_it_is_stale(tmp_path: Path) -> None:
    path = claim_of(tmp_path, dead_process(), host="elsewhere")
    with pytest.raises(Busy, match="on elsewhere"), Claim(tmp_path):
        pass
    old = path.stat().st_mtime - STALE_SECONDS - 1
    os.utime(path, (old, old))
    with Claim(tmp_path):
        pass
    assert not path.exists()


def test_a_claim_that_is_being_written_counts(tmp_path: Path) -> None:
    (tmp_path / "claim-new.json").touch()
    with pytest.raises(Busy), Claim(tmp_path):
        pass


def test_a_holder_keeps_its_claim_fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "BEAT_SECONDS", 0.01)
    with Claim(tmp_path):
        (path,) = tmp_path.glob("claim-*.json")
        os.utime(path, (0, 0))
        for _ in range(1000):
            if path.stat().st_mtime > 0:
                break
            threading.Event().wait(0.01)
        assert path.stat().st_mtime > 0


def test_a_holder_that_was_overtaken_stops_at_once(tmp_path: Path) -> None:
    code = (
        "import sys, threading, pathlib\n"
        "from sbtrpo.runs import claims\n"
        "claims.BEAT_SECONDS = 0.01\n"
        "with claims.Claim(sys.argv[1]):\n"
        "    next(pathlib.Path(sys.argv[1]).glob('claim-*')).unlink()\n"
        "    threading.Event().wait(60)\n"
        "print('went on')\n"
    )
    process = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert process.returncode == claims.LOST
    assert "was taken over" in process.stderr
    assert "went on" not in process.stdout
