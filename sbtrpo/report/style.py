"""How methods look in figures and on the page. Colour-blind readers can tell Okabe and Ito's colours apart."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from sbtrpo.benchmark.columns import VERSION
from sbtrpo.report.variants import Variant

VERMILLION, ORANGE, SKY, GREEN = "#D55E00", "#E69F00", "#56B4E9", "#009E73"
BLUE, PURPLE, GREY, BROWN, VIOLET = "#0072B2", "#CC79A7", "#7F7F7F", "#8C564B", "#7B3FA0"
WINE, OLIVE, INDIGO = "#882255", "#999933", "#332288"
"""Of methods that are not this package's. From Paul Tol's muted scheme, which colour-blind readers can read, too."""

SOLID, DASHED, DOTTED = "solid", "dashed", "dotted"
MARKERS = {SOLID: "o", DASHED: "s", DOTTED: "^"}


@dataclass(frozen=True)
class Look:
    """Colour and line of a method; methods of the same colour have different lines."""

    colour: str
    line: str = SOLID

    @property
    def marker(self) -> str:
        """The marker of a figure that shows points instead of lines."""
        return MARKERS[self.line]


LOOKS = {
    "sb-trpo": Look(VERMILLION),
    "ppo_lag": Look(ORANGE),
    "trpo_lag": Look(BLUE),
    "cpo": Look(GREEN),
    "cup": Look(PURPLE),
    "cppo_pid": Look(ORANGE, DASHED),
    "focops": Look(SKY),
    "rcpo": Look(BLUE, DASHED),
    "pcpo": Look(GREEN, DASHED),
    "p3o": Look(PURPLE, DASHED),
    "c_trpo": Look(SKY, DASHED),
    "c3po": Look(GREY),
    "crpo": Look(GREY, DASHED),
    "pcrpo": Look(GREEN, DOTTED),
    "appo": Look(PURPLE, DOTTED),
    "trpo": Look(BLUE, DOTTED),
    "ppo": Look(ORANGE, DOTTED),
    "sb-trpo_critic": Look(VERMILLION, DASHED),
    "sb-trpo_rcritic": Look(VERMILLION, DOTTED),
    "sb-trpo_annealed": Look(BROWN),
    "sb-trpo_paced": Look(BROWN, DASHED),
    "sb-trpo_growing": Look(BROWN, DOTTED),
    "sb-trpo_hits": Look(VIOLET, DOTTED),
    "sb-trpo_late_hits": Look(VIOLET),
    "sb-trpo_polished": Look(VIOLET, DASHED),
}


def look(variant: Variant) -> Look:
    """A variant's look: its method's colour, with a dotted line if its settings are not the default.

    With other constraints the colour is darker and the line stays, so that methods that all have them differ.

    >>> look(Variant("cpo")).line, look(Variant("cpo", (("cost_limit", 15.0),))).line
    ('solid', 'dotted')
    """
    settings = dict(variant.settings)
    version = settings.pop(VERSION, variant.algo)
    published = LOOKS.get(variant.algo) or _look_of_another(version)
    darker = settings.pop("constraints", None) is not None
    return Look(_darker(published.colour) if darker else published.colour, DOTTED if settings else published.line)


def _look_of_another(name: str) -> Look:
    """The look of a method that is not this package's: always the same for a name, and that of no other method here."""
    looks = [Look(colour, line) for line in MARKERS for colour in (WINE, OLIVE, INDIGO)]
    return looks[zlib.crc32(name.encode()) % len(looks)]


def paler(colour: str, share: float) -> str:
    """A colour of which this share is left, the rest is white.

    >>> paler("#D55E00", 1.0), paler("#000000", 0.0)
    ('#D55E00', '#FFFFFF')
    """
    return "#" + "".join(f"{round(255 + share * (int(colour[k : k + 2], 16) - 255)):02X}" for k in (1, 3, 5))


def _darker(colour: str) -> str:
    return "#" + "".join(f"{int(colour[k : k + 2], 16) * 5 // 8:02X}" for k in (1, 3, 5))
