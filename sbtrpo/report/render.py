"""Tables of numbers and text, as Markdown, LaTeX and HTML. All text is escaped: it may come from a run's folder."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from sbtrpo.report.runs import Estimate

PLUS_MINUS = " ± "
LEGEND = (
    "Bold: best value of a task (of rewards, among methods with a safety probability of at least 0.5; of the others,"
    " among methods with a positive reward, if there are any; where no method that is safe enough has a safe reward"
    " above 0, the safest, and of those alike in safety the one whose safe episodes earn most). Italic: safety"
    " probability below 0.5. Red: negative reward. Grey: another method is at least as good in both."
)
MOST_DECIMALS = 5
ROWS_A_PAGE = 50
"""A LaTeX table with more rows may break over pages."""


@dataclass(frozen=True)
class Cell:
    """One entry: text, or a mean and its deviation."""

    text: str = ""
    """The mean, if `std` is not empty."""
    std: str = ""
    bold: bool = False
    italic: bool = False
    colour: str | None = None
    """red or grey."""
    value: float | None = None
    """The number by which the page sorts; None for text."""
    note: str = ""
    """A text that the page shows when a reader points at the cell."""

    @property
    def plain(self) -> str:
        """The text without bold, italic and colour."""
        return f"{self.text}{PLUS_MINUS}{self.std}" if self.std else self.text

    @property
    def numeric(self) -> bool:
        """Whether the cell holds a number."""
        return self.value is not None


@dataclass(frozen=True)
class Table:
    """A table; its files have `name` as their name."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    groups: Sequence[tuple[str, int]] = ()
    """Headings above the columns, and how many columns each spans."""
    rules: frozenset[int] = field(default_factory=frozenset)
    """Rows with a line above them."""
    row_tags: Sequence[Sequence[str]] = ()
    """What each row is about, as `task:...`, `method:...` or `verdict:...`; the page filters by these."""
    column_tags: Sequence[str] = ()
    """The same for each column; empty for a column of labels."""

    def full_columns(self) -> list[str]:
        """Columns with the name of their group, for formats without spans."""
        above = [text for text, span in self.groups for _ in range(span)] or [""] * len(self.columns)
        return [f"{group}: {column}" if group else column for group, column in zip(above, self.columns, strict=True)]


def number_texts(mean: float, std: float) -> tuple[str, str]:
    """Two significant digits of the mean and as many decimals of the deviation, as the paper prints them.

    >>> number_texts(0.331, 0.18), number_texts(863.0, 377.6), number_texts(7.96, 6.5)
    (('0.33', '0.18'), ('860', '378'), ('8.0', '6.5'))
    """
    rounded = float(f"{mean:.1e}")
    if abs(rounded) >= 10:
        return f"{rounded:.0f}", "" if math.isnan(std) else f"{std:.0f}"
    places = 1 if rounded == 0 else min(MOST_DECIMALS, 1 - math.floor(math.log10(abs(rounded))))
    return _trim(f"{mean:.{places}f}"), "" if math.isnan(std) else _trim(f"{std:.{places}f}")


def _trim(text: str) -> str:
    """A number without zeros at its end, but with one decimal.

    >>> _trim("0.90"), _trim("8.0"), _trim("-0.00")
    ('0.9', '8.0', '0.0')
    """
    kept = re.sub(r"(\.\d+?)0+$", r"\1", text)
    return kept.removeprefix("-") if float(kept) == 0 else kept


def number_cell(estimate: Estimate | None, note: str = "") -> Cell:
    """The cell of an estimate; a dash if there is none."""
    if estimate is None:
        return Cell("–")
    mean, std = number_texts(estimate.mean, estimate.std)
    return Cell(mean, std, value=estimate.mean, note=note)


# ---- Markdown ------------------------------------------------------------------------------------------------------


def markdown(table: Table) -> str:
    """The table as GitHub's Markdown."""
    numeric = [any(row[k].numeric for row in table.rows) for k in range(len(table.columns))]
    lines = [f"## {escape_markdown(table.title)}", ""]
    lines.append("| " + " | ".join(map(escape_markdown, table.full_columns())) + " |")
    lines.append("| " + " | ".join("---:" if right else "---" for right in numeric) + " |")
    lines += ["| " + " | ".join(map(_markdown_cell, row)) + " |" for row in table.rows]
    coloured = any(cell.colour for row in table.rows for cell in row)
    if caption := " ".join(filter(None, (table.caption, "‡ stands for red, † for grey." if coloured else ""))):
        lines += ["", escape_markdown(caption)]
    return "\n".join(lines) + "\n"


def _markdown_cell(cell: Cell) -> str:
    text = escape_markdown(cell.plain)
    if not text:
        return ""
    marks = ("**" if cell.bold else "") + ("*" if cell.italic else "")
    return marks + text + marks[::-1] + {"red": " ‡", "grey": " †"}.get(cell.colour or "", "")


def escape_markdown(text: str) -> str:
    """Text without any markup of Markdown.

    >>> print(escape_markdown("a|b <i> *c*"))
    a\\|b &lt;i&gt; \\*c\\*
    """
    text = re.sub(r"([\\`*_\[\]|~#$!])", r"\\\1", " ".join(text.split()))
    return re.sub(r"[<>]", lambda match: html.escape(match[0]), text.replace("&", "&amp;"))


# ---- LaTeX ---------------------------------------------------------------------------------------------------------

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "±": r"$\pm$",
    "−": "$-$",
    "–": "--",
    "·": r"$\cdot$",
    "‡": r"$\ddagger$",
    "†": r"$\dagger$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "×": r"$\times$",
    "↑": r"$^\uparrow$",
    "↓": r"$^\downarrow$",
    **{
        letter: f"$\\{name}$"
        for letter, name in {
            "β": "beta", "γ": "gamma", "δ": "delta", "η": "eta", "κ": "kappa", "λ": "lambda", "μ": "mu", "ν": "nu",
            "σ": "sigma", "ω": "omega",
        }.items()
    },
}  # fmt: skip


def latex(table: Table) -> str:
    """The table in the paper's layout; a long one may break over pages."""
    alignments = "".join("c" if any(row[k].numeric for row in table.rows) else "l" for k in range(len(table.columns)))
    caption = rf"\caption{{{escape_latex(' '.join(filter(None, (table.title + '.', table.caption))))}}}"
    head = [r"\toprule"]
    if table.groups:
        spans = [rf"\multicolumn{{{span}}}{{c}}{{{escape_latex(text)}}}" for text, span in table.groups]
        head.append(" & ".join(spans) + r" \\")
    head += [" & ".join(map(escape_latex, table.columns)) + r" \\", r"\midrule"]
    body = []
    for k, row in enumerate(table.rows):
        body += [r"\midrule"] if k in table.rules else []
        body.append(" & ".join(map(_latex_cell, row)) + r" \\")
    if len(table.rows) > ROWS_A_PAGE:
        opening = [rf"\begin{{longtable}}{{{alignments}}}", caption + r"\\", *head, r"\endhead"]
        closing = [r"\bottomrule", r"\end{longtable}"]
    else:
        opening = [r"\begin{table*}[t]", r"\centering", caption, r"\resizebox{\textwidth}{!}{%"]
        opening += [rf"\begin{{tabular}}{{{alignments}}}", *head]
        closing = [r"\bottomrule", r"\end{tabular}}", r"\end{table*}"]
    first = [
        "% needs amsmath, booktabs, graphicx, longtable, xcolor",
        r"\providecolor{negrew}{HTML}{C1121F}\providecolor{dom}{HTML}{8A8F98}",
    ]
    return "\n".join([*first, *opening, *body, *closing]) + "\n"


def _latex_cell(cell: Cell) -> str:
    if cell.std:
        text = rf"{cell.text}\pm{cell.std}".replace(",", "{,}")  # a bare comma sets a space behind it
        text = rf"\mathit{{{text}}}" if cell.italic else text
        text = rf"\boldsymbol{{{text}}}" if cell.bold else text
        text = f"${text}$"
    else:
        text = escape_latex(cell.text)
        text = rf"\textit{{{text}}}" if cell.italic else text
        text = rf"\textbf{{{text}}}" if cell.bold else text
    return {"red": r"\color{negrew}", "grey": r"\color{dom}"}.get(cell.colour or "", "") + text


def escape_latex(text: str) -> str:
    """Text without any command of LaTeX.

    >>> print(escape_latex("50 % of x_1 & β"))
    50 \\% of x\\_1 \\& $\\beta$
    """
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(text.split()))


# ---- HTML ----------------------------------------------------------------------------------------------------------

_STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; padding: 0 1rem; max-width: 80rem }
div { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .6rem; text-align: left; white-space: nowrap } .number { text-align: right }
thead tr:last-child th, tr.rule td { border-bottom: 1px solid } tr.rule td { border: 0; border-top: 1px solid #8888 }
.bold { font-weight: 700 } .italic { font-style: italic } .red { color: #c1121f } .grey { color: #8a8f98 }
caption, p { text-align: left; max-width: 60rem }
"""


def html_table(table: Table) -> str:
    """The `<table>` element, for use in a page."""
    lines = ["<table>", "<thead>"]
    if table.groups:
        spans = [f'<th colspan="{span}" scope="colgroup">{html.escape(text)}</th>' for text, span in table.groups]
        lines.append(f"<tr>{''.join(spans)}</tr>")
    heads = "".join(f'<th scope="col">{html.escape(column)}</th>' for column in table.columns)
    lines += [f"<tr>{heads}</tr>", "</thead>", "<tbody>"]
    for k, row in enumerate(table.rows):
        attribute = ' class="rule"' if k in table.rules else ""
        lines.append(f"<tr{attribute}>{''.join(map(_html_cell, row))}</tr>")
    return "\n".join([*lines, "</tbody>", "</table>"])


def html_document(table: Table) -> str:
    """A whole page with one table."""
    title = html.escape(table.title)
    return (
        f'<!doctype html>\n<html lang="en-GB"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>\n'
        f"<body><h1>{title}</h1>\n<div>{html_table(table)}</div>\n<p>{html.escape(table.caption)}</p></body></html>\n"
    )


def _html_cell(cell: Cell) -> str:
    flags = (("number", cell.numeric), ("bold", cell.bold), ("italic", cell.italic), (cell.colour or "", True))
    classes = " ".join(name for name, on in flags if on and name)
    text = html.escape(cell.plain)
    if cell.numeric:
        text = re.sub(r"^-", "−", text)  # a real minus sign
    attributes = f' class="{classes}"' if classes else ""
    attributes += f' title="{html.escape(cell.note)}"' if cell.note else ""
    return f"<td{attributes}>{text}</td>"
