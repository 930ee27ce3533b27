"""Files with a method that a user might write."""

from __future__ import annotations

from pathlib import Path

SOURCE = '''
from dataclasses import dataclass

from sbtrpo.algorithms import TrustRegionMethod, TrustRegionSettings
from sbtrpo.algorithms.trust_region import natural_gradient_step
from sbtrpo.config.settings import Advantage, setting


@dataclass(frozen=True)
class CautiousSettings(TrustRegionSettings):
    advantage: Advantage = "mc"
    caution: float = setting(CAUTION, least=0)
    """Weight of the costs."""


class CLASS(TrustRegionMethod[CautiousSettings]):
    """Reward minus costs."""

    Settings = CautiousSettings
    may_stall = True

    def propose(self, region, gradients, costs):
        weights = (1.0, *(-self.settings.caution for _ in gradients[1:]))
        return natural_gradient_step(region, gradients, weights, self.settings)
'''


def write_method(path: Path, name: str = "MyMethod", caution: float = 0.5) -> str:
    """Write such a file, with another content for another caution; returns what `--algo` takes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SOURCE.replace("CLASS", name).replace("CAUTION", str(caution)))
    return f"{path}:{name}"
