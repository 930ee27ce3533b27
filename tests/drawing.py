"""Whether there is OpenGL here."""

import functools

from sbtrpo.envs.view.graphics import NoGraphicsError
from sbtrpo.envs.view.render import probe


@functools.cache
def can_draw() -> bool:
    try:
        probe()
    except NoGraphicsError:
        return False
    return True
