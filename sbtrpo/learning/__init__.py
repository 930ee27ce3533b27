"""From worlds to better policies: rollouts, advantages, the training loop and its statistics."""
