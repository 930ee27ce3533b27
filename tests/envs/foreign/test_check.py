"""`sbtrpo check`: what it finds, and what it tells to do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sbtrpo.envs.foreign.check import check_environment
from sbtrpo.envs.foreign.findings import CheckFinding, CheckReport
from tests.envs.foreign.worlds import name_of

EXAMPLES = Path(__file__).parents[3] / "examples"


def findings(what: str, seconds: float = 0.1) -> CheckReport:
    return check_environment(name_of(what), seconds, isolated=False)


def worst(report: CheckReport) -> CheckFinding:
    return report.findings[0]


@pytest.mark.parametrize("what", ["walk", "six walk"])
def test_a_good_environment_passes(what: str) -> None:
    report = findings(what)
    assert report.ok
    assert {finding.severity for finding in report.findings} == {"note"}
    assert report.lines()[0] == f"{name_of(what)}: nothing to change"
    assert "steps a second in one process" in report.lines()[-1]


@pytest.mark.parametrize("task", ["SafetyPointGoal2-v0", "sbtrpo:SafetyHopperVelocity-v1"])
def test_our_own_tasks_pass(task: str) -> None:
    report = check_environment(task, seconds=0.5)
    assert report.ok
    assert all(finding.severity == "note" or "speed" in finding.message for finding in report.findings)


@pytest.mark.parametrize("name", ["Reservoir", "LavaGrid"])
def test_the_examples_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    report = check_environment(f"own_environment:{name}-v0", seconds=1.0, isolated=False)
    assert report.lines()[0] == f"own_environment:{name}-v0: nothing to change"
    assert any("of" in finding.message and "cost something" in finding.message for finding in report.findings)
    assert "own_environment" in sys.modules


@pytest.mark.parametrize(
    ("what", "said", "remedy"),
    [
        ("no cost", 'no cost in step 1 of an episode: info has no "cost"', 'put info["cost"] into every step'),
        ("negative", "the cost was -1 in step 2 of an episode", "costs are >= 0"),
        ("text cost", "the cost must be a number, got 'much'", ""),
        ("nan", "entry 0 of the observation was nan in step 3", "find what divides by 0"),
        ("nan reward", "the reward was nan in step 1", "find what divides by 0"),
        ("endless", "there is no time limit", "register the environment with max_episode_steps"),
        ("shape", "an observation in step 2 of an episode has another form", "correct the space"),
        ("four", "step must return (obs, reward, terminated, truncated, info)", ""),
        ("bare reset", "reset must take a seed and return (obs, info)", ""),
        ("unbounded", "the action space has infinite bounds", ""),
        ("several", "MultiDiscrete([40 40]) are 1,600 combinations", ""),
        ("constructor", "its constructor raised KeyError", ""),
        ("raise", "it raised ZeroDivisionError: as promised", "counted as a fault"),
        ("unknown", "does not register 'Unknown-v0' with Gymnasium", ""),
    ],
)
def test_what_makes_training_impossible_is_an_error(what: str, said: str, remedy: str) -> None:
    report = findings(what)
    assert not report.ok
    assert said in worst(report).message
    assert remedy in worst(report).remedy
    assert " and ".join(report.lines()[0].split(": ")[1:]) == "1 error"


@pytest.mark.parametrize(
    ("what", "said", "remedy"),
    [
        ("bounds", "leaves its bounds: entry 0 is", "correct the observation space"),
        ("dtype", "is float64, but the space is float32", "correct the observation space"),
        ("unseeded", "reset does not respect its seed", "draw every random number from self.np_random"),
        ("lamp", "observations are images of (8, 8, 1), and flattened every pixel", "train with --network cnn"),
        ("lamp within", "a part of the observation is an image of (8, 8, 1)", "make the image the whole observation"),
        ("rooms", "steps with random actions cost something", "see that a cost of 0 is possible"),
    ],
)
def test_what_spoils_results_is_a_warning(what: str, said: str, remedy: str) -> None:
    report = findings(what)
    assert report.ok
    assert worst(report).severity == "warning"
    assert said in worst(report).message
    assert remedy in worst(report).remedy


def test_an_environment_that_takes_days_is_a_warning() -> None:
    report = findings("slow", seconds=0.4)
    assert worst(report).severity == "warning"
    assert "hours on the" in worst(report).message
    assert "--total-steps" in worst(report).remedy


def test_costs_that_never_come_are_noted() -> None:
    assert any("nothing cost in" in finding.message for finding in findings("never costs").findings)


def test_returns_below_zero_are_noted_with_what_to_judge_by() -> None:
    (finding,) = (f for f in findings("debts").findings if "on average" in f.message)
    assert finding.severity == "note"
    assert "return -" in finding.message
    assert "judge by the safety probability first" in finding.remedy
    assert not any("on average" in finding.message for finding in findings("walk").findings)


def test_an_environment_that_ends_its_process_is_reported() -> None:
    report = check_environment(name_of("die"), seconds=0.2)
    assert not report.ok
    assert "ended its process" in worst(report).message


def test_findings_come_from_the_other_process_too() -> None:
    said = [finding.message for finding in check_environment(name_of("bounds"), seconds=0.2).findings]
    assert "leaves its bounds" in said[0]
    assert len(said) == 3


@pytest.mark.slow
def test_an_environment_that_hangs_is_reported() -> None:
    found = check_environment(name_of("hang"), seconds=0.2, timeout=15.0)
    assert "hung for more than 15 seconds" in worst(found).message


@pytest.mark.parametrize("what", ["raise", "constructor"])
def test_the_way_to_what_an_environment_raised_is_shown(what: str) -> None:
    lines = check_environment(name_of(what), seconds=0.2).lines()
    assert any(line.startswith("    ") and "worlds.py" in line for line in lines)
    assert not any("sbtrpo/envs/foreign/t" in line or "gymnasium/" in line for line in lines)


def test_a_trial_takes_time() -> None:
    with pytest.raises(ValueError, match="seconds must be above 0"):
        check_environment("ToyCorridor-v0", seconds=0.0)
