"""Every method has an implementation, a page, and settings that exist; the generated tables are current."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from sbtrpo.algorithms import IMPLEMENTATIONS
from sbtrpo.config import TrainConfig
from sbtrpo.config.catalogue import METHODS, QUIRKS, Method
from sbtrpo.tools import algorithm_docs

PAGES = Path(__file__).parents[2] / "docs" / "algorithms"
FIELDS = {field.name for field in dataclasses.fields(TrainConfig)}

every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def test_catalogue_and_implementations_name_the_same_methods() -> None:
    assert list(IMPLEMENTATIONS) == list(METHODS)


@every_method
def test_every_setting_of_the_catalogue_is_a_setting(method: Method) -> None:
    named = {*method.settings, *method.paper, *method.quirks, *(k for own in method.per_task.values() for k in own)}
    assert named <= FIELDS
    assert set(method.quirks) <= set(QUIRKS)


def test_every_quirk_is_a_setting_that_concerns_some_method() -> None:
    assert set(QUIRKS) <= FIELDS
    assert set(QUIRKS) == {name for method in METHODS.values() for name in method.quirks}


@every_method
def test_every_method_has_a_page_with_all_sections(method: Method) -> None:
    page = (PAGES / algorithm_docs.page(method)).read_text(encoding="utf-8")
    headings = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    expected = ["Idea", "Update", "Implementation details", "Switches", "At cost limit 0", "Settings"]
    assert [heading for heading in headings if heading in expected] == expected
    assert f"sbtrpo/algorithms/{IMPLEMENTATIONS[method.name].__module__.split('.')[-1]}.py" in page


def test_variants_of_sb_trpo_share_a_page_and_no_page_is_an_orphan() -> None:
    assert {algorithm_docs.page(METHODS[name]) for name in METHODS if name.startswith("sb-trpo")} == {"sb-trpo.md"}
    assert {path.name for path in PAGES.glob("*.md")} == set(algorithm_docs.tables())


@every_method
def test_settings_show_what_a_run_resolves_to_and_what_the_paper_prints(method: Method) -> None:
    rows = {name: (default, printed) for name, default, printed, _ in algorithm_docs.settings(method).rows}
    assert {*method.settings, *method.paper, "gamma", "hidden"} <= set(rows)
    config = TrainConfig(algo=method.name).resolved()
    for name, (default, printed) in rows.items():
        value = getattr(config, name)
        assert value is not None
        assert default == " ".join(map(str, value)) if isinstance(value, tuple) else type(value)(default) == value
        assert bool(printed) == (name in method.paper)


def test_generated_tables_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert algorithm_docs.main([str(PAGES), "--check"]) == 0, capsys.readouterr().err


def test_check_says_what_to_run_and_writing_mends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pages = tmp_path / "pages"
    shutil.copytree(PAGES, pages)
    page = pages / "cpo.md"
    current = page.read_text(encoding="utf-8")
    page.write_text(current.replace("| `cg_damping` | 0.1 |", "| `cg_damping` | 0.2 |"), encoding="utf-8")
    assert algorithm_docs.main([str(pages), "--check"]) == 1
    assert capsys.readouterr().err == (
        f"tables are not current in cpo.md; run: python -m sbtrpo.tools.algorithm_docs {pages}\n"
    )
    assert algorithm_docs.main([str(pages)]) == 0
    assert page.read_text(encoding="utf-8") == current


def test_a_page_without_a_place_for_its_table_is_refused() -> None:
    with pytest.raises(ValueError, match="lacks the place for its table: <!-- generated: settings -->"):
        algorithm_docs.fill("# CPO\n", {"settings": algorithm_docs.settings(METHODS["cpo"])})
