"""What is printed, on terminals and pipes that do not know every character."""

from __future__ import annotations

import io
import sys


def print_anything() -> None:
    """Let what a stream cannot show, such as δ in a pipe on Windows, become a question mark instead of an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="replace")
