"""What a run is: its settings and those of its method, as dataclasses, files and tables."""

from sbtrpo.config.train import TrainConfig

__all__ = ["TrainConfig"]
