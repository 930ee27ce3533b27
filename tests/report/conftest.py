"""One small report that many tests look at, and a browser to look with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sbtrpo.benchmark.sources import joined
from sbtrpo.report import Report, build
from tests.report import browser, samples

ALGOS = ["sb-trpo", "cpo", "c_trpo", "ppo_lag"]


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Two tasks of the paper's with its studies, and one whose name nobody should trust; a video beside them."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "films" / "SafetyCarCircle2-v0").mkdir(parents=True)
    (folder / "films" / "SafetyCarCircle2-v0" / "a <b> & c.mp4").write_bytes(b"not a film")
    tables = [
        samples.benchmark(["SafetyPointButton2-v0", "SafetyCarCircle2-v0"], ALGOS, seeds=2, epochs=25),
        samples.table([samples.run(samples.NASTY, "sb-trpo", epochs=25), samples.run(samples.NASTY, "cpo", epochs=25)]),
    ]
    return build(joined(tables), folder / "out", Path(folder / "films"))


@pytest.fixture(scope="module")
def tab() -> Iterator[browser.Page]:
    """A tab of a browser, where there is one."""
    pytest.importorskip("websockets", reason="websockets drives the browser")
    if browser.executable() is None:
        pytest.skip("there is no Chromium; Debian: apt-get install chromium")
    with browser.chromium() as page_in_browser:
        yield page_in_browser
