"""Which of two results is better, whatever the sign of returns: what all rankings and the best checkpoint go by.

The paper's safe reward is the mean reward with unsafe episodes counting 0, that is the safety probability times the
reward of safe episodes. As long as safe episodes earn more than 0, it grows with either. Where they earn less, every
violation raises it, and it says nothing of who is better. So:

1. Results that are safe in at least half of their episodes and have a safe reward above 0 go by their safe reward.
2. All others come behind them, and safety comes first: they go by the safety probability in steps of 0.05, since the 50
   episodes of an epoch tell no less than that apart, and within a step by the reward of safe episodes.
"""

from __future__ import annotations

import math

SAFE_ENOUGH = 0.5
"""The least safety probability with which a reward counts."""
STEP = 0.05
BELOW_ZERO = (
    "safe episodes return less than 0, and the safe reward counts unsafe ones as 0: here every violation raises it;"
    " go by the safety probability first, then by the reward of safe episodes"
)
NONE_SAFE = (
    "no episode was safe, and the safe reward counts unsafe ones as 0, which is more than these episodes return: go by"
    " the safety probability first"
)
"""What to tell a user of such results."""
CUT_SHORT = (
    "training episodes end with their first violation, so that reward, cost and length are of shorter episodes than"
    " others have; `sbtrpo evaluate` plays them to the end"
)
"""And of runs with `end_at_violation`."""

Merit = tuple[float, float, float]
"""Results in the order of their merits are in the order from the worst to the best."""


def merit(safety_probability: float, safe_reward: float) -> Merit:
    """What a result is worth beside others on its task.

    >>> merit(0.6, 5.0) > merit(0.9, 3.0) > merit(0.4, 8.0)
    True
    >>> merit(0.90, -143.0) > merit(0.53, -39.0)
    True
    """
    if safety_probability >= SAFE_ENOUGH and safe_reward > 0:
        return 1.0, safe_reward, 0.0
    if not safety_probability > 0:  # nor is it known before the first episode has ended
        return 0.0, -1.0, 0.0
    level = float(round(safety_probability / STEP))
    return 0.0, level, safe_episodes_reward(safety_probability, safe_reward)


def merit_of_safe_reward(safe_reward: float) -> Merit:
    """What a result is worth of which only the safe reward is known: below zero less than any other."""
    return (1.0, safe_reward, 0.0) if safe_reward > 0 else (0.0, -2.0, safe_reward)


def safe_episodes_reward(safety_probability: float, safe_reward: float) -> float:
    """The mean reward of safe episodes; NaN where there is none."""
    return safe_reward / safety_probability if safety_probability > 0 else math.nan


def misleading(reward: float, safety_probability: float, safe_reward: float) -> str:
    """What to say where returns below 0 make the safe reward mislead; empty where it does not."""
    if safe_reward < 0:
        return BELOW_ZERO
    return NONE_SAFE if safety_probability == 0 and reward < 0 else ""
