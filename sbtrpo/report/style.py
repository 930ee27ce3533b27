"""How methods look in figures and on the page. Colour-blind readers can tell Okabe and Ito's colours apart."""

from __future__ import annotations

from dataclasses import dataclass

from sbtrpo.report.runs import Variant

VERMILLION, ORANGE, SKY, GREEN = "#D55E00", "#E69F00", "#56B4E9", "#009E73"
BLUE, PURPLE, GREY = "#0072B2", "#CC79A7", "#7F7F7F"

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
}


def look(variant: Variant) -> Look:
    """A variant's look: its method's colour, with a dotted line if its settings are not the default.

    >>> look(Variant("cpo")).line, look(Variant("cpo", (("cost_limit", 15.0),))).line
    ('solid', 'dotted')
    """
    published = LOOKS.get(variant.algo, Look(GREY, DOTTED))
    return published if variant.plain else Look(published.colour, DOTTED)
