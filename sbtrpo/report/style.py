"""How methods look, in every figure and on the page: Okabe and Ito's colours, which the colour-blind tell apart."""

from __future__ import annotations

from dataclasses import dataclass

from sbtrpo.report.runs import Variant

VERMILLION, ORANGE, SKY, GREEN = "#D55E00", "#E69F00", "#56B4E9", "#009E73"
BLUE, PURPLE, GREY = "#0072B2", "#CC79A7", "#7F7F7F"

SOLID, DASHED, DOTTED = "solid", "dashed", "dotted"
MARKERS = {SOLID: "o", DASHED: "s", DOTTED: "^"}


@dataclass(frozen=True)
class Look:
    """Colour and line of a method; equal colours differ in their lines."""

    colour: str
    line: str = SOLID

    @property
    def marker(self) -> str:
        """For points, where there are no lines."""
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
    """A variant's look: its method's, with a line of its own where it is not the method as published.

    >>> look(Variant("cpo")).line, look(Variant("cpo", (("cost_limit", 15.0),))).line
    ('solid', 'dotted')
    """
    own = LOOKS.get(variant.algo, Look(GREY, DOTTED))
    return own if variant.plain else Look(own.colour, DOTTED)
