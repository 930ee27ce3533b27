"""Stable-Baselines3's PPO on one of our tasks: the standard form suits other people's algorithms.

    pip install stable-baselines3
    python examples/stable_baselines3_ppo.py

PPO knows no cost: it learns to reach goals and drives through hazards on the way.
"""

from __future__ import annotations

import gymnasium
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

TASK = "sbtrpo:SafetyPointGoal2-v0"


def untrained(seed: int = 0) -> PPO:
    """PPO before its first step."""
    env = make_vec_env(lambda: gymnasium.make(TASK), n_envs=4, seed=seed)
    return PPO("MlpPolicy", env, n_steps=500, batch_size=250, learning_rate=1e-3, seed=seed, device="cpu")


def train(steps: int, seed: int = 0) -> PPO:
    """A policy after so many steps."""
    return untrained(seed).learn(steps)


def evaluate(model: PPO, episodes: int, seed: int = 1000) -> tuple[float, float]:
    """Mean return and mean cost of an episode."""
    env = gymnasium.make(TASK)
    totals = np.zeros(2)
    for episode in range(episodes):
        obs, _ = env.reset(seed=seed + episode)
        over = False
        while not over:
            action, _ = model.predict(obs)
            obs, reward, terminated, truncated, info = env.step(action)
            totals += reward, info["cost"]
            over = terminated or truncated
    return totals[0] / episodes, totals[1] / episodes


def main() -> None:
    """Before and after."""
    for name, model in (("untrained", untrained()), ("PPO, 100,000 steps", train(100_000))):
        reward, cost = evaluate(model, episodes=10)
        print(f"{name}: return {reward:.1f}, cost {cost:.1f}")


if __name__ == "__main__":
    main()
