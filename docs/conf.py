"""The documentation as a site: Sphinx reads the pages in Markdown and the package's docstrings (`make docs`).

The site needs no network: formulas become MathML, which browsers draw themselves, and the search is a file of its own.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from math_core import LatexToMathML
from sphinx.application import Sphinx

import sbtrpo

project, author, release = "sbtrpo", "the authors of sbtrpo", sbtrpo.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
html_theme, html_title, html_math_renderer = "furo", "sbtrpo", "mathml"
html_copy_source = html_show_copyright = False
default_role = "code"  # docstrings write `name`, as Markdown does
autodoc_typehints = "description"
autodoc_member_order = "bysource"
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]


def _formula(self: Any, node: nodes.Element) -> None:
    block = isinstance(node, nodes.math_block)
    self.body.append(LatexToMathML(fancy_error=False).convert_with_local_state(node.astext(), displaystyle=block))
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Let formulas be MathML."""
    app.add_html_math_renderer("mathml", (_formula, None), (_formula, None))
