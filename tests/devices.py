"""Where tests of the torch form run: the CPU, or the device that SBTRPO_TEST_DEVICE names.

`make test-gpu` runs them on a GPU where there is one.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import torch

from sbtrpo.nets.forms import Form, NumpyForm, TorchForm, to_numpy

DEVICE = os.environ.get("SBTRPO_TEST_DEVICE", "cpu")


def double_forms() -> tuple[Form, Form]:
    """NumPy's and torch's, both in float64."""
    return NumpyForm(np.float64), TorchForm(DEVICE, torch.float64)


def assert_close(ours: Any, theirs: Any, tolerance: float = 1e-9) -> None:
    """Arrays of either kind, relative to the largest entry."""
    one, other = to_numpy(ours), to_numpy(theirs)
    assert one.shape == other.shape
    scale = max(1.0, float(np.abs(other).max())) if other.size else 1.0
    np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance * scale)
