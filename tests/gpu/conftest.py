from __future__ import annotations

import pytest
import warp

from tests.parity.conftest import report

__all__ = ["report"]


def pytest_configure(config: pytest.Config) -> None:
    """Kernels that serve a few steps are compiled in half the time if nobody optimises them."""
    if "not slow" in str(config.getoption("markexpr")):
        warp.config.optimization_level = 0
