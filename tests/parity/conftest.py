from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Print a line even when pytest captures output: the figures of parity are worth seeing."""

    def say(line: str) -> None:
        with capsys.disabled():
            print(f"\n  {line}", end="")

    return say
