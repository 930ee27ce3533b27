"""OpenGL to draw with: without a screen, or in a window; and what to say where there is none."""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from typing import Any

from sbtrpo.errors import UserError


class NoGraphicsError(UserError, RuntimeError):
    """No OpenGL to draw with; says what to install."""


def graphics_library() -> str:
    """The name of the OpenGL library to draw with without a screen: `egl`, `osmesa`, `cgl` or `glfw`.

    Where MUJOCO_GL is set, it decides. Only one can be used in a process, so libraries are looked at before they are
    loaded; where there is none, `NoGraphicsError` names the package to install.
    """
    wish = os.environ.get("MUJOCO_GL", "").lower().strip()
    if wish in ("disable", "disabled", "off", "false", "0"):
        raise NoGraphicsError(f"MUJOCO_GL={wish} forbids drawing; unset it, or set it to egl")
    if wish in ("egl", "osmesa", "glfw", "cgl"):
        return wish
    if sys.platform == "darwin":
        return "cgl"
    if sys.platform == "win32":
        return "glfw"
    if _egl_devices():
        return "egl"
    if _loads("libOSMesa.so.8") or _loads("libOSMesa.so"):
        return "osmesa"
    if os.environ.get("DISPLAY"):
        return "glfw"
    raise NoGraphicsError(advice("there is no OpenGL library to draw with"))


def advice(problem: str) -> str:
    """The problem, and what to install or to do."""
    if sys.platform != "linux":
        return f"{problem}; unset MUJOCO_GL, renew the graphics driver, and draw where somebody is logged in"
    return (
        f"{problem}; install Mesa's EGL, on Debian and Ubuntu `apt-get install libegl1 libgl1`"
        " (or `libosmesa6` and set MUJOCO_GL=osmesa)"
    )


def _loads(library: str) -> Any:
    """The library, or None where it is not installed."""
    try:
        return ctypes.CDLL(library)
    except OSError:
        return None


def _egl_devices() -> int:
    """Number of devices that EGL can draw on, a software renderer among them; 0 without EGL."""
    library = _loads("libEGL.so.1")
    if library is None or not (_loads("libOpenGL.so.0") or _loads("libGL.so.1")):
        return 0
    library.eglGetProcAddress.restype = ctypes.c_void_p
    address = library.eglGetProcAddress(b"eglQueryDevicesEXT")
    if not address:
        return 0
    prototype = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int))
    count = ctypes.c_int(0)
    return count.value if prototype(address)(0, None, ctypes.byref(count)) else 0


def offscreen_context(width: int, height: int) -> Any:
    """A context of MuJoCo's to draw in without a screen, made current."""
    library = graphics_library()
    try:
        context = importlib.import_module(f"mujoco.{library}").GLContext(width, height)
        context.make_current()
    except Exception as error:  # each library fails in a way of its own, down to an AttributeError of None
        reason = " ".join(str(error).split())
        raise NoGraphicsError(advice(f"OpenGL by {library} does not work here ({reason})")) from error
    return context


class WindowContext:
    """A visible window with an OpenGL context."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._glfw: Any = importlib.import_module("glfw")
        if not self._initialise():
            raise NoGraphicsError(
                "there is no screen to open a window on; use render_mode='rgb_array', or set DISPLAY to one"
            )
        self._glfw.window_hint(self._glfw.VISIBLE, 1)
        self._window = self._glfw.create_window(width, height, title, None, None)
        if not self._window:
            raise NoGraphicsError(advice("the screen offers no OpenGL window"))
        self.make_current()
        self._glfw.swap_interval(0)

    def _initialise(self) -> bool:
        if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            return False
        return bool(self._glfw.init())

    def make_current(self) -> None:
        """Draw here from now on."""
        self._glfw.make_context_current(self._window)

    @property
    def open(self) -> bool:
        """Whether the user has not closed the window."""
        return self._window is not None and not self._glfw.window_should_close(self._window)

    def size(self) -> tuple[int, int]:
        """In pixels, as the user has it now."""
        width, height = self._glfw.get_framebuffer_size(self._window)
        return width, height

    def present(self) -> None:
        """Show what was drawn, and hear what the user did."""
        self._glfw.swap_buffers(self._window)
        self._glfw.poll_events()

    def free(self) -> None:
        """Close the window."""
        if self._window:
            self._glfw.destroy_window(self._window)
        self._window = None
