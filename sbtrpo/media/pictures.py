"""Pictures that an environment of somebody else's draws of its worlds, for films of them."""

from __future__ import annotations

import io
from collections.abc import Collection
from typing import Any, Self

import numpy as np
from PIL import Image

from sbtrpo.config.run import TIMEOUT
from sbtrpo.config.tasks import with_env_kwargs
from sbtrpo.envs.foreign.environment import UnfitEnvironment
from sbtrpo.envs.foreign.pool import EnvPool, make_env_pool
from sbtrpo.envs.view.render import ROBOT, Frame

PAPER = (244, 245, 247)
"""Around pictures of another form than the film's."""


def pool_with_pictures(task: str, worlds: int, seed: int, timeout: float = TIMEOUT) -> EnvPool:
    """Worlds that draw themselves."""
    try:
        return make_env_pool(with_env_kwargs(task, {"render_mode": "rgb_array"}), worlds, seed, timeout=timeout)
    except UnfitEnvironment as error:
        if "render_mode" in str(error).removeprefix(f"{task}?render_mode"):
            error = UnfitEnvironment(f"{task} cannot be filmed: let its constructor take render_mode='rgb_array'")
        raise error from None


class Pictures:
    """What a film asks of a `Renderer`, from worlds that draw themselves; between steps pictures are kept as PNG."""

    def __init__(self, pool: EnvPool, width: int, height: int) -> None:
        self._pool, self.width, self.height = pool, width, height
        self.seconds_a_step = 1 / pool.pictures_a_second()

    def view(self, world: int) -> bytes:
        """A world as it is now."""
        kept = io.BytesIO()
        Image.fromarray(self._pool.render(world)).save(kept, "png", compress_level=1)
        return kept.getvalue()

    def concerned(self, world: int, violated: Collection[str]) -> frozenset[int]:
        """What is red after a step: nobody knows more than that something is."""
        return frozenset({ROBOT} if violated else ())

    def draw(self, view: bytes, red: Collection[int] = (), trail: Any = None) -> Frame:
        """A view in the film's size, not distorted."""
        picture = Image.open(io.BytesIO(view)).convert("RGB")
        scale = min(self.width / picture.width, self.height / picture.height)
        size = max(1, round(scale * picture.width)), max(1, round(scale * picture.height))
        canvas = Image.new("RGB", (self.width, self.height), PAPER)
        canvas.paste(picture.resize(size), ((self.width - size[0]) // 2, (self.height - size[1]) // 2))
        frame: Frame = np.asarray(canvas, np.uint8)
        return frame

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()
