"""Hostile inputs, and what a command may do with them."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import sys
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from sbtrpo.cli import app as cli

DANGEROUS = [
    "<script>alert(1)</script>", '"onload="alert(1)', "'><img src=x onerror=alert(1)>", "javascript:alert(1)",
    "</style><script>", "</script>", "<!--", "]]>", "&lt;", "$\\frac{", "\\input{/etc/passwd}", "{{7*7}}", "%s%n",
    "../../../../tmp/out", "/etc/passwd", "..", ".", "~", "C:\\windows\\nul", "NUL", "con", "a\x00b", "a\nb",
    "\x1b[31m", "\u202egnp.exe", "\ufeff", "\u2028", "a" * 3000, "", " ", "-rf", "__import__('os').system('id')",
    "os:system",
]  # fmt: skip
"""What has fooled other programs."""

texts = st.one_of(st.sampled_from(DANGEROUS), st.text(max_size=40))
"""Any text that UTF-8 can hold, and often a dangerous one."""
numbers = st.one_of(
    st.integers(),
    st.sampled_from([0, -1, 1, 2**31, 2**63, 2**64, 10**12, 10**30]),
    st.floats(),
    st.sampled_from([1e308, -1e308, 5e-324]),
)
values = st.recursive(
    st.one_of(texts, numbers, st.booleans()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=6,
)
"""What TOML and JSON can hold."""


class Bomb:
    """Leaves a file where it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.trace),)


def pickled(trace: Path) -> bytes:
    """A pickle that makes the folder `trace` when it is loaded."""
    return pickle.dumps(Bomb(trace))


def obeys(*arguments: str) -> tuple[int, str]:
    """Run a command; whatever it was given, it does its work or says in one sentence why not."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        path = list(sys.path)
        status = cli.main(list(arguments))
        sys.path[:] = path
    sentences = [line for line in err.getvalue().splitlines() if line.startswith("sbtrpo: ")]
    assert status in (0, 1, 2)
    assert "Traceback" not in err.getvalue()
    if status == 2:
        assert len(sentences) == 1, err.getvalue()
        assert len(sentences[0]) < 2000, sentences[0][:300]
    return status, err.getvalue()
