"""The picture of the page: `python -m tests.report.picture` takes it, of the main table's runs, with a Chromium."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path

from PIL import Image

from sbtrpo.benchmark.collect import read_table
from sbtrpo.report import build
from sbtrpo.report.results import RESULTS
from tests.report import browser

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "report.png"
SIZE = (1000, 1790)


def main() -> None:
    """Build the report, open its page, and keep what is first to be seen."""
    if browser.executable() is None:
        raise SystemExit("there is no Chromium; install one, or let CHROMIUM name it")
    with tempfile.TemporaryDirectory() as folder, browser.chromium() as tab:
        page = build(read_table(RESULTS / "main_2m.parquet"), Path(folder)).index
        tab.size(*SIZE)
        tab.open(page)
        seen = io.BytesIO(tab.screenshot(Path(folder) / "seen.png"))
        Image.open(seen).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
