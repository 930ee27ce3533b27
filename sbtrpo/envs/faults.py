"""Faults: steps that a world could not finish. What their episodes count as, and when there are too many.

A world faults where its simulation diverges, or its environment raises, hangs, ends its process or gives a number that
is not finite. The pool marks it in `info["fault"]`, truncates its episode and begins the next one.
"""

from __future__ import annotations

from sbtrpo.config.run import Faulted
from sbtrpo.errors import UserError

ALARMING = 0.01
"""The share of faulted episodes above which a run says so."""
TOLERATED, PATIENCE = 0.1, 10
"""Faults a step, of each world, that a run bears for long; and how many more of each world it bears at all."""


class EnvironmentFailure(UserError, RuntimeError):  # noqa: N818
    """An environment that fails again and again."""


class Tolerance:
    """Ends a run whose worlds fault in more than a tenth of their steps.

    Every fault is a debt, and every step of a world pays a tenth of one; a debt of ten faults a world is too much. So a
    world that fails on every second step ends the run within 25 steps, and some bad steps here and there never do.

    >>> tolerance = Tolerance(worlds=1)
    >>> for _ in range(1000):
    ...     tolerance.step(0, "")
    >>> for _ in range(12):
    ...     tolerance.step(1, "out of fuel")
    Traceback (most recent call last):
    sbtrpo.envs.faults.EnvironmentFailure: worlds fail in more than a tenth of their steps, ...
    """

    def __init__(self, worlds: int) -> None:
        self.debt, self._worlds = 0.0, worlds

    def step(self, faults: int, error: str, steps: int = 1) -> None:
        """Take in a step of all worlds, or several, in which so many faulted, the last one because of `error`."""
        self.debt = max(self.debt + faults - TOLERATED * self._worlds * steps, 0.0)
        if self.debt > PATIENCE * self._worlds:
            raise EnvironmentFailure(
                f"worlds fail in more than a tenth of their steps, at last because: {error}; mend that (`sbtrpo check`"
                " tries an environment), then `sbtrpo resume` goes on from the last checkpoint"
            )


def alarm(faulted: float, episodes: float, counted: Faulted, place: str = "") -> str:
    """What to say, loudly, of so many faulted episodes among all of a place; empty where they are few.

    >>> alarm(1, 100, "unsafe")
    ''
    >>> alarm(3, 20, "apart")[:53]
    'WARNING: 3 of 20 episodes (15 %) were cut by a fault:'
    >>> alarm(3, 20, "apart", " of epoch 7")[:44]
    'WARNING: 3 of 20 episodes of epoch 7 (15 %) '
    """
    if not faulted > ALARMING * episodes:
        return ""
    meaning = {
        "unsafe": "They count as unsafe, but their rewards and costs are cut short",
        "apart": "They are left out of all rates and means, which so tell of the other episodes alone",
    }
    return (
        f"WARNING: {faulted:.0f} of {episodes:.0f} episodes{place} ({100 * faulted / episodes:.3g} %) were cut by a"
        " fault: the simulation diverged, or the environment raised, hung, ended its process or gave a number that is"
        f" not finite. {meaning[counted]}; mend the cause before you rely on these numbers."
    )
