"""Writes videos frame by frame: MP4 if there is an encoder, GIF always."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from sbtrpo.files import naming

if TYPE_CHECKING:
    from sbtrpo.envs.view.render import Frame

GIF_WIDTH, GIF_FPS = 480, 10
"""The largest width and rate of a GIF; it is for pages that play no videos."""
COLOURS = 224
_LATER_COLOURS = ((235, 13, 20), (193, 18, 31), (27, 138, 60), (255, 255, 255), (217, 153, 92))
NO_ENCODER = "there is no encoder for MP4, so only the GIF was written; run `pip install 'sbtrpo[video]'` for both"
"""The message for a user when `record` returned no MP4."""


def ffmpeg() -> str | None:
    """The path of ffmpeg, from `imageio-ffmpeg` or from the system; None if there is none."""
    with contextlib.suppress(ImportError, RuntimeError):
        return str(importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe())
    return shutil.which("ffmpeg")


class Mp4:
    """An MP4 file, which an ffmpeg process encodes."""

    def __init__(self, program: str, path: Path, size: tuple[int, int], fps: float) -> None:
        self._path = path
        source = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{size[0]}x{size[1]}", "-r", f"{fps:g}", "-i", "-"]
        target = ["-an", "-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "20", "-movflags", "+faststart"]
        command = [program, "-y", "-loglevel", "error", *source, *target, str(path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)

    def add(self, frame: Frame) -> None:
        """Hand a frame to ffmpeg; raises OSError with its message if it has died."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(frame.tobytes())
        except BrokenPipeError:
            self.close()

    def close(self) -> None:
        """Wait until ffmpeg has finished the file."""
        _, errors = self._process.communicate()
        if self._process.returncode:
            reason = " ".join(errors.decode(errors="replace").split())
            raise OSError(f"ffmpeg could not write {self._path}: {reason}")

    def abandon(self) -> None:
        """Stop ffmpeg and remove the unfinished file."""
        self._process.kill()
        self._process.communicate()
        self._path.unlink(missing_ok=True)


class Gif:
    """A GIF with one palette, which `close` writes."""

    def __init__(self, path: Path, size: tuple[int, int], fps: float) -> None:
        self._path = path
        self._every = max(1, round(fps / GIF_FPS))
        self._milliseconds = round(1000 * self._every / fps)
        scale = min(1.0, GIF_WIDTH * max(1.0, size[0] / size[1] / 1.5) / size[0])
        self._size = round(scale * size[0]), round(scale * size[1])
        self._seen = 0
        self._pictures: list[Image.Image] = []
        self._palette: Image.Image | None = None

    def add(self, frame: Frame) -> None:
        """Keep this frame if it is its turn: a GIF shows fewer frames a second than an MP4."""
        if self._seen % self._every == 0:
            picture = Image.fromarray(frame).resize(self._size, Image.Resampling.BILINEAR)
            if self._palette is None:
                self._palette = _palette(picture)
            # With one palette and no dithering, pixels that do not change take no room in the file.
            self._pictures.append(picture.quantize(palette=self._palette, dither=Image.Dither.NONE))
        self._seen += 1

    def close(self) -> None:
        """Write all frames to the file."""
        first, *others = self._pictures
        with naming(self._path):
            first.save(
                self._path, format="GIF", save_all=True, append_images=others, duration=self._milliseconds, loop=0,
                optimize=False,
            )  # fmt: skip

    def abandon(self) -> None:
        """Drop the frames; no file has been written yet."""
        self._pictures.clear()


def _palette(picture: Image.Image) -> Image.Image:
    """The colours of the first picture, and those that later ones need."""
    swatch = Image.new("RGB", (picture.width, picture.height + 16 * len(_LATER_COLOURS)))
    swatch.paste(picture, (0, 0))
    shades = np.linspace(0.25, 1.0, picture.width)[None, :, None]
    for k, colour in enumerate(_LATER_COLOURS):
        band = np.broadcast_to(shades * np.array(colour), (16, picture.width, 3)).astype(np.uint8)
        swatch.paste(Image.fromarray(np.ascontiguousarray(band)), (0, picture.height + 16 * k))
    return swatch.quantize(COLOURS, dither=Image.Dither.NONE)
