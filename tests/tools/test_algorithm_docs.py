"""Every method has an implementation, a page, and settings that exist; the generated tables are current."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import shutil
from pathlib import Path

import pytest

import sbtrpo.algorithms
from sbtrpo.algorithms import FirstOrderMethod, Method, TrustRegionMethod
from sbtrpo.config import TrainConfig, catalogue
from sbtrpo.config.catalogue import Entry
from sbtrpo.config.settings import declared
from sbtrpo.tools import algorithm_docs

PAGES = Path(__file__).parents[2] / "docs" / "algorithms"
METHODS = {name: catalogue.method(name) for name in catalogue.BUILT_IN}

every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)


def test_catalogue_and_implementations_name_the_same_methods() -> None:
    modules = [
        importlib.import_module(f"sbtrpo.algorithms.{m.name}") for m in pkgutil.iter_modules(sbtrpo.algorithms.__path__)
    ]
    classes = [kind for module in modules for kind in vars(module).values() if inspect.isclass(kind)]
    implemented = {kind for kind in classes if issubclass(kind, Method)} - {Method, TrustRegionMethod, FirstOrderMethod}
    assert implemented == {method.implementation for method in METHODS.values()}


@every_method
def test_what_is_other_on_some_tasks_is_a_setting(method: Entry) -> None:
    for task, settings in method.settings.per_task.items():
        assert task in sbtrpo.task_ids()
        assert set(settings) <= set(declared(method.settings))


@every_method
def test_every_method_has_a_page_with_all_sections(method: Entry) -> None:
    page = (PAGES / algorithm_docs.page(method)).read_text(encoding="utf-8")
    headings = [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]
    expected = ["Idea", "Update", "Implementation details", "Switches", "At cost limit 0", "Settings"]
    assert [heading for heading in headings if heading in expected] == expected
    assert f"sbtrpo/algorithms/{method.implementation.__module__.split('.')[-1]}.py" in page


def test_variants_of_sb_trpo_share_a_page_and_no_page_is_an_orphan() -> None:
    assert {algorithm_docs.page(METHODS[name]) for name in METHODS if name.startswith("sb-trpo")} == {"sb-trpo.md"}
    assert {path.name for path in PAGES.glob("*.md")} == set(algorithm_docs.tables())


@every_method
def test_settings_show_what_a_run_has_and_what_the_paper_prints(method: Entry) -> None:
    rows = {name: (default, printed) for name, default, printed, _ in algorithm_docs.settings(method).rows}
    items = declared(method.settings)
    quirks = {name for name, *_ in algorithm_docs.quirks(method).rows}
    assert quirks == {name for name, item in items.items() if item.is_quirk}
    assert {*items, "gamma", "hidden", *method.implementation.run_defaults} == {*rows, *quirks}
    config = TrainConfig(algo=method.name)
    for name, (default, printed) in rows.items():
        value = config.get(name)
        if value is None or isinstance(value, tuple):
            assert default == ("–" if value is None else " ".join(map(str, value)))
        else:
            assert type(value)(default) == value
        assert bool(printed) == (name in items and items[name].rule.paper is not None)


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
