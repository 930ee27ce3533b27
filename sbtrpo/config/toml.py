"""Files in TOML, which may come from anybody."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from sbtrpo.errors import sentence

MOST_SETTINGS = 1_000_000
"""Bytes of the largest TOML file that is read; nobody writes so many settings."""
MOST_NESTED = 100
"""Parts of the longest key there."""


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; a ValueError says in one sentence why it cannot be read."""
    with path.open("rb") as file:
        content = file.read(MOST_SETTINGS + 1)
    if len(content) > MOST_SETTINGS:
        raise ValueError(f"{path} is too long for a file of settings, which has at most {MOST_SETTINGS:,} bytes")
    try:
        # The parser's time grows with the square of a dotted key's parts.
        if any(part.count(b".") > MOST_NESTED for part in re.split(rb"[,=\n\[\]{}]", content)):
            raise ValueError(f"a key has more than {MOST_NESTED} parts")
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not TOML: {sentence(error)}") from error
