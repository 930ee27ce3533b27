"""Whether there is OpenGL here."""

import functools

from sbtrpo.envs.graphics import NoGraphicsError
from sbtrpo.envs.render import probe


@functools.cache
def can_draw() -> bool:
    try:
        probe()
    except NoGraphicsError:
        return False
    return True
