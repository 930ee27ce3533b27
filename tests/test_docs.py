"""The documentation: the site is built without a warning, links lead somewhere, and the tutorial does what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from sbtrpo.cli import app as cli

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md"]
"""What the site does not hold; it checks its own links when it is built."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make docs` builds; a link to a page or heading that is not there is an error."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "docs", str(out)]
    child = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    return out


def test_every_page_is_in_the_site_and_its_search(site: Path) -> None:
    index = (site / "searchindex.js").read_text("utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").with_suffix("").as_posix()
        assert (site / f"{name}.html").exists()
        assert f'"{name}"' in index
        assert f'href="{name}.html"' in (site / "index.html").read_text("utf-8") or name == "index"


def test_the_api_is_made_from_the_docstrings(site: Path) -> None:
    text = (site / "api.html").read_text("utf-8")
    for name in ("sbtrpo.train", "sbtrpo.Pool.step", "sbtrpo.algorithms.TrustRegionMethod.propose"):
        assert f'id="{name}"' in text


def test_the_site_needs_no_network_and_formulas_no_script(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        assert not re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="(?:https?:)?//', text), page
    formulas = (site / "algorithms" / "sb-trpo.html").read_text("utf-8")
    assert formulas.count('<math display="block"') >= 2
    assert "<mtable" in formulas
    assert "$" not in re.sub(r"<(script|style)\b.*?</\1>", "", formulas, flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Of the headings of a page in Markdown, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_of_pages_outside_of_the_site_lead_somewhere(page: Path) -> None:
    targets = [link for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")) if "://" not in link]
    for link in targets:
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_code_on_environments_runs_as_it_stands() -> None:
    """But for what is about a package of the reader's."""
    text = (ROOT / "docs" / "environments.md").read_text("utf-8")
    blocks = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "my_package" not in block]
    assert len(blocks) == 3
    for block in blocks:
        exec(block, {})


@pytest.mark.usefixtures("no_figures")
def test_the_tutorial_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files are saved as their first line says, commands and other code run, in the order of the page."""
    monkeypatch.chdir(tmp_path)
    commands = []
    text = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    for kind, block in re.findall(r"```(sh|toml|python)\n(.*?)```", text, re.DOTALL):
        if file := re.match(r"# (\w+\.\w+)\n", block):
            Path(file[1]).write_text(block)
        elif kind == "python":
            exec(block, {})
        for line in block.splitlines() if kind == "sh" else []:
            program, *arguments = shlex.split(line)
            assert program == "sbtrpo"
            assert cli.main(arguments) == 0, capsys.readouterr()
            commands.append(arguments[0])
    said = capsys.readouterr().out
    assert commands[-4:] == ["benchmark", "benchmark", "collect", "report"]
    assert "6 of 6 runs done, 0 failed" in said
    assert "cost of four episodes:" in said
    table = pyarrow.parquet.read_table("runs/orchard/results.parquet")
    assert set(table["algo"].to_pylist()) == {"sb-trpo", "Thrifty"}
    for made in ("look.png", "runs/first/curves.png", "paths.png", "report/index.html"):
        assert Path(made).exists()
