"""What there is to know about an environment before training on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True)
class CheckFinding:
    """Something to know about an environment."""

    severity: Severity
    """error: it cannot be trained on; warning: results will suffer; note: good to know."""
    message: str
    remedy: str = ""
    trace: str = ""
    """The way through the environment's code to what it raised."""


@dataclass(frozen=True)
class CheckReport:
    """All findings, the gravest first."""

    task: str
    findings: tuple[CheckFinding, ...]

    @property
    def ok(self) -> bool:
        """Whether the environment can be trained on."""
        return not any(finding.severity == "error" for finding in self.findings)

    def lines(self) -> list[str]:
        """The report as lines of text."""
        counts = [
            f"{count} {severity}{'s' if count > 1 else ''}"
            for severity in SEVERITIES[:2]
            if (count := sum(finding.severity == severity for finding in self.findings))
        ]
        lines = [f"{self.task}: {' and '.join(counts) if counts else 'nothing to change'}"]
        for finding in self.findings:
            lines.append(f"{finding.severity}: {finding.message}")
            if finding.remedy:
                lines.append(f"    {finding.remedy}")
            lines += [f"    {line}" for line in finding.trace.splitlines()]
        return lines
