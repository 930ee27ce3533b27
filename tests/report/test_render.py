"""Formats of numbers and tables."""

from __future__ import annotations

import html.parser
import math

import pytest

from sbtrpo.report import paper, render
from sbtrpo.report.render import Cell, Table, number_texts

SPECIAL = "a & b_c %$#{}~^\\ <i>|*`[x](y)*"


def test_numbers_are_printed_as_the_paper_prints_them() -> None:
    rows = [*paper.main().values(), *(row.results for row in paper.cost_limit_15())]
    cells = [cell for results in rows for metrics in results.values() for cell in metrics.values()]
    assert len(cells) == 384 + 88
    other = [cell for cell in cells if number_texts(cell.mean, cell.std) != (cell.mean_text, cell.std_text)]
    assert [(cell.mean_text, cell.std_text) for cell in other] == [("-0.0", "238.1")]  # nought has no sign


@pytest.mark.parametrize(
    ("mean", "std", "texts"),
    [
        (9.96, 3.2, ("10", "3")),  # rounding reaches the next power of ten
        (0.0, 0.0, ("0.0", "0.0")),
        (-0.123, 0.0567, ("-0.12", "0.06")),
        (1234.0, 56.7, ("1200", "57")),
        (3e-9, 0.5, ("0.0", "0.5")),
        (2.0, math.nan, ("2.0", "")),
        (-0.0001, 0.0, ("-0.0001", "0.0")),
    ],
)
def test_numbers_by_hand(mean: float, std: float, texts: tuple[str, str]) -> None:
    assert number_texts(mean, std) == texts


def table() -> Table:
    grey = Cell("0.4", "0.1", italic=True, colour="grey", value=0.4)
    red = Cell("0.9", "0.0", colour="red", value=0.9, note='say "x" <b>')
    rows = [[Cell(SPECIAL), Cell("-1.2", "0.3", bold=True, value=-1.2), grey], [Cell("b"), Cell("–"), red]]
    groups = [("", 1), (SPECIAL, 2)]
    return Table("t", SPECIAL, [SPECIAL, "x ↑", "y ↓"], rows, SPECIAL, groups, frozenset({1}))


def test_markdown_escapes_and_marks() -> None:
    text = render.markdown(table())
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 4
    for line in lines:
        assert line.replace("\\|", "").count("|") == 4  # no cell has broken its row
    assert "**-1.2 ± 0.3**" in text
    assert "*0.4 ± 0.1* †" in text
    assert "0.9 ± 0.0 ‡" in text
    assert "<i>" not in text
    assert "\\*" in text


def test_latex_escapes_and_marks() -> None:
    text = render.latex(table())
    assert r"$\boldsymbol{-1.2\pm0.3}$" in text
    assert r"\color{dom}$\mathit{0.4\pm0.1}$" in text
    assert r"\color{negrew}$0.9\pm0.0$" in text
    assert r"a \& b\_c \%\$\#\{\}\textasciitilde{}\textasciicircum{}\textbackslash{}" in text
    assert text.count(r"\midrule") == 2
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    for line in body.splitlines():
        if line.endswith(r"\\"):
            spans = line.count(r"\multicolumn{2}")
            assert line.replace(r"\&", "").count("&") == 2 - spans
    assert text.count("{") - text.count(r"\{") == text.count("}") - text.count(r"\}")


def test_long_latex_tables_break_over_pages() -> None:
    rows = [[Cell(str(k))] for k in range(render.ROWS_A_PAGE + 1)]
    assert r"\begin{longtable}" in render.latex(Table("t", "t", ["x"], rows))
    assert r"\begin{longtable}" not in render.latex(Table("t", "t", ["x"], rows[:3]))


class Reader(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_escapes_and_marks() -> None:
    text = render.html_document(table())
    reader = Reader()
    reader.feed(text)
    assert "i" not in reader.tags
    assert "b" not in reader.tags
    assert reader.text.count(SPECIAL) == 6  # title, heading, group, column, cell, caption
    assert '<td class="number bold">−1.2 ± 0.3</td>' in text
    assert 'title="say &quot;x&quot; &lt;b&gt;"' in text
    assert reader.tags.count("tr") == 4
