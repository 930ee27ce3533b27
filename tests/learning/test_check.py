"""`sbtrpo check --algo`: what is wrong with a method is told, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sbtrpo.cli import main
from sbtrpo.learning.check import check_method

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_method.py"
HEAD = """
import torch, numpy
from sbtrpo.algorithms import FirstOrderMethod, TrustRegionMethod, natural_gradient_step
"""
SOUND = "return natural_gradient_step(region, gradients, (1.0, -0.5), self.settings)"


def written(folder: Path, body: str) -> str:
    """A trust-region method in a file."""
    path = folder / "mine.py"
    path.write_text(f'{HEAD}\nclass Mine(TrustRegionMethod):\n    """Mine."""\n{body}')
    return f"{path}:Mine"


def propose(*lines: str) -> str:
    steps = "".join(f"        {line}\n" for line in lines)
    return f"    def propose(self, region, gradients, costs):\n{steps}"


@pytest.mark.parametrize("name", ["WaryTRPO", "SoftPPO"])
def test_the_examples_have_nothing_to_change(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--algo", f"{EXAMPLE}:{name}"]) == 0
    assert capsys.readouterr().out == f"{EXAMPLE}:{name}: nothing to change\n"


@pytest.mark.parametrize(
    ("body", "finding"),
    [
        (propose("return costs['all']"), r"an update raised TypeError: .*list indices"),
        (propose("region.batch.advantages.mul_(2)", SOUND), r"an update changes batch.advantages"),
        (propose("self.policy.normaliser.mean[:] = 0.5", SOUND), r"changes the observation statistics"),
        (propose("torch.rand(1)", SOUND), r"draws from a global generator"),
        (propose("numpy.random.rand()", SOUND), r"draws from a global generator"),
        (
            "    scale = 1.0\n" + propose("self.scale *= 0.5", f"gradients = gradients * self.scale; {SOUND}")
            .replace("(1.0, -0.5)", "(1.0, -self.scale)"),
            r"saved and restored goes on otherwise: .* differs in epoch 3",
        ),
        (
            "    count = [0]\n" + propose("self.count[0] += 1", SOUND.replace("-0.5", "-0.1 * self.count[0]")),
            r"the same seed gives other numbers the second time",
        ),
        (propose("gradients = gradients * 0", SOUND), r"left the policy as it was"),
        (
            "    def update(self, *given):\n        return {**super().update(*given), 'cost': 1.0}\n" + propose(SOUND),
            r"reports cost, which metrics.csv has already; give it another name",
        ),
        (
            "    def state_dict(self):\n        return {'thing': object()}\n" + propose(SOUND),
            r"its state cannot be saved and restored",
        ),
    ],
)  # fmt: skip
def test_what_a_method_does_wrong_is_told(body: str, finding: str, tmp_path: Path) -> None:
    report = check_method(written(tmp_path, body))
    assert any(re.search(finding, line) for line in report.lines()), report.lines()


def test_where_a_method_raised_is_told(tmp_path: Path) -> None:
    report = check_method(written(tmp_path, propose("return gradients.no_such_thing")))
    assert not report.ok
    assert f"{tmp_path}" in report.findings[0].remedy
    assert "gradients.no_such_thing" in report.findings[0].remedy


def test_a_sound_method_of_ones_own_has_nothing_to_change(tmp_path: Path) -> None:
    assert check_method(written(tmp_path, propose(SOUND))).lines()[0].endswith("nothing to change")


def test_a_command_that_names_nothing_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 2
    assert capsys.readouterr().err == "sbtrpo: name a task, or a method with --algo\n"


def test_a_task_that_is_none_is_told_as_such(tmp_path: Path) -> None:
    report = check_method(written(tmp_path, propose(SOUND)), task="Nope-v0")
    assert report.lines()[1].startswith("error: unknown task 'Nope-v0'")
