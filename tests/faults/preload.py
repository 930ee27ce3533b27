"""What a forked command finds imported; it has no threads, which a fork would not take along."""

import numpy as np
import torch.utils.tensorboard  # noqa: F401

import sbtrpo.benchmark.command
import sbtrpo.benchmark.pack
import sbtrpo.cli.app
import sbtrpo.learning.training
import sbtrpo.report
import sbtrpo.runs.evaluation  # noqa: F401
from sbtrpo.runs.curves import curves_png

curves_png({"epoch": np.ones(1), "steps": np.ones(1)}, "fonts, too, are read once")
