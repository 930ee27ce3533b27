"""The paper's highlighting, red, grey, italic and bold, from the printed numbers of one task: the report's one ranking.

The rules apply to pairs: (safe reward, safety probability) in the table's upper half, (reward, cost) in its lower half.

red        both entries, if the reward entry is below 0
grey       both entries, if they are not red and another method is at least as good in both and better in one
italic     both entries, in both halves, if the safety probability is below 0.5
bold       the largest reward entry among methods with a safety probability of at least 0.5 (even if it is red), and
           the best second entry among methods with a reward entry above 0; all that are equal to it are bold

In two cases the report has rules of its own. Where no method with that safety has a safe reward above 0, the largest
may be that of most violations, as in the paper's table on Point Button: then safety comes first, as
`sbtrpo.runs.judgement` says. And where no reward entry is above 0, all methods compete for the best second entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from sbtrpo.runs.judgement import SAFE_ENOUGH, merit

Key = TypeVar("Key")


@dataclass(frozen=True)
class Pair:
    """The two numbers of one method for one task in one half of the table."""

    reward: float
    """Its safe reward, or its reward."""
    second: float
    """Its safety probability, or its cost."""
    safety: float
    """Its safety probability, in either half."""


@dataclass(frozen=True)
class PairMarks:
    """How the two entries of a pair look."""

    bold_reward: bool
    bold_second: bool
    italic: bool
    colour: str | None


def marks(pairs: Mapping[Key, Pair], lower_is_better: bool, as_published: bool = False) -> dict[Key, PairMarks]:
    """The marks of all methods in one task.

    Args:
        pairs: the pairs by method; they compete with each other.
        lower_is_better: whether the second entry is a cost.
        as_published: by the paper's rules throughout.

    >>> by_method = marks({"a": Pair(1.0, 0.9, 0.9), "b": Pair(0.5, 0.9, 0.9)}, lower_is_better=False)
    >>> by_method["b"]
    PairMarks(bold_reward=False, bold_second=True, italic=False, colour='grey')
    """
    sign = -1.0 if lower_is_better else 1.0
    by_reward = as_published or lower_is_better
    worth = {key: (pair.reward,) if by_reward else merit(pair.safety, pair.reward) for key, pair in pairs.items()}
    best_reward = max((worth[key] for key, pair in pairs.items() if pair.safety >= SAFE_ENOUGH), default=None)
    earning = [pair for pair in pairs.values() if pair.reward > 0]
    if not earning and not as_published:
        earning = list(pairs.values())
    best_second = max((sign * pair.second for pair in earning), default=None)
    return {
        key: PairMarks(
            bold_reward=pair.safety >= SAFE_ENOUGH and worth[key] == best_reward,
            bold_second=pair in earning and sign * pair.second == best_second,
            italic=pair.safety < SAFE_ENOUGH,
            colour=_colour(pair, pairs, sign),
        )
        for key, pair in pairs.items()
    }


def _colour(pair: Pair, pairs: Mapping[Key, Pair], sign: float) -> str | None:
    if pair.reward < 0:
        return "red"
    reward, second = pair.reward, sign * pair.second
    others = ((other.reward, sign * other.second) for other in pairs.values())
    dominated = any(a >= reward and b >= second and (a, b) != (reward, second) for a, b in others)
    return "grey" if dominated else None
