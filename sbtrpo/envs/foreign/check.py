"""Try an environment, and tell what to change before training on it."""

from __future__ import annotations

import signal
from multiprocessing.connection import Connection

from sbtrpo.config.tasks import is_foreign
from sbtrpo.envs.foreign.findings import SEVERITIES, CheckFinding, CheckReport
from sbtrpo.envs.foreign.tryout import Tryout
from sbtrpo.envs.foreign.workers import start_process, stop_process

TIMEOUT = 60.0
"""Seconds beyond its time after which an environment counts as hanging, unless told otherwise."""


def check_environment(
    task: str, seconds: float = 5.0, seed: int = 0, isolated: bool = True, timeout: float = TIMEOUT
) -> CheckReport:
    """Try an environment with random actions.

    Args:
        task: "module:EnvId", or a task of this package.
        seconds: how long to step it, besides the time to start.
        seed: of its episodes and of the actions.
        isolated: try a foreign environment in a process of its own, as training does: it may die.
        timeout: seconds beyond its time after which it counts as hanging.

    >>> check_environment("ToyCorridor-v0", seconds=0.1).ok
    True
    """
    if seconds <= 0:
        raise ValueError(f"seconds must be above 0, got {seconds}")
    if is_foreign(task) and isolated:
        findings = _try_in_a_process(task, seed, seconds, timeout)
    else:
        findings = Tryout(task, seed).run(seconds)
    return CheckReport(task, tuple(sorted(findings, key=lambda finding: SEVERITIES.index(finding.severity))))


def _try_in_a_process(task: str, seed: int, seconds: float, timeout: float) -> list[CheckFinding]:
    connection, process = start_process(_send_findings, task, seed, seconds)
    findings: list[CheckFinding] = []
    try:
        while connection.poll(seconds + timeout):
            finding = connection.recv()
            if finding is None:  # that was all
                return findings
            findings.append(finding)
        how, remedy = f"hung for more than {timeout:g} seconds", "see that step and reset return"
    except (EOFError, OSError):
        how, remedy = "ended its process", "run it by itself, with `python -X faulthandler`, to see where"
    finally:
        stop_process(connection, process, patience=1.0)
    return [*findings, CheckFinding("error", f"the environment {how}", remedy)]


def _send_findings(connection: Connection, task: str, seed: int, seconds: float) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asked
    Tryout(task, seed, tell=connection.send).run(seconds)
    connection.send(None)
