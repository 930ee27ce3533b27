"""Our methods at fidelity "paper" against recorded updates of the published code.

What decides a few of the recorded updates is rounding: the step is below the resolution of single precision, or the
system of equations is so ill-conditioned that the authors' own functions give something else in double precision.
They are named here, with what can still be asked of them.
"""

from typing import Any

import numpy as np
import pytest
import torch

from sbtrpo.algorithms.cup import CUP
from tests.updates.recordings import ALGORITHMS, Parts, Replay, Update, error, runs, updates

TOLERANCE = 1e-3
"""Of the recorded change."""

BELOW_RESOLUTION = {
    ("cpo", "small_frequent_s0_L0", 0), ("cpo", "small_none_s0_L0", 1), ("cpo", "small_none_s0_L0", 2),
    ("cpo", "small_rare_s1_L0", 0), ("pcpo", "hard_frequent_s4_L25", 1),
}  # fmt: skip
"""Changes below 1e-7: ours must be as small; which try is accepted is noise."""
RESOLUTION = {torch.float64: 1e-7, torch.float32: 4 * np.finfo(np.float32).eps}
"""How small that is: parameters are up to 2, which single precision knows within 2.4e-7; measured 1.9e-7 on x86."""
ILL_CONDITIONED = {
    ("pcpo", "hard_frequent_s4_L0", 1): 2e-3, ("ctrpo", "hard_frequent_s4_L0", 1): 1e-2,
    ("ctrpo", "hard_frequent_s4_L25", 0): 1e-2,
}  # fmt: skip
"""Agreement within this."""
ILL_CONDITIONED_IN_SINGLE = {
    ("pcpo", "hard_frequent_s4_L0", 0): 5e-3, ("pcpo", "hard_frequent_s4_L25", 0): 5e-3,
    ("ctrpo", "hard_frequent_s4_L0", 1): 5e-2, ("cpo", "hard_frequent_s4_L25", 1): 5e-3,
}  # fmt: skip
"""The same in single precision, where it is less; measured 1.7e-3, 1.7e-3, 2.8e-2 and, on x86 alone, 2.2e-3."""
DECIDED_BY_ROUNDING = {("ctrpo", "near_frequent_s0_d-0.02", 1), ("ctrpo", "near_frequent_s0_d-0.001", 1)}
"""The recorded number of tries is that of single precision alone; direction and mode still count."""

CASES = [
    pytest.param(name, run, id=f"{name}-{run['run']}")
    for name in ALGORITHMS
    for run in runs(name)
    if run["set"] != "gap"
]
FIRST_ORDER = {"ppo_lag", "ppo", "cup", "focops", "cppo_pid", "p3o", "c3po"}


def check_facts(recorded: Update, ours: dict[str, float]) -> None:
    """Multiplier, case, mode and stop counts, wherever the published code reports them."""
    logged, known = recorded.facts["logged"], recorded.facts["locals"]
    if "multiplier" in ours and recorded.facts["multiplier_used"] is not None:
        assert ours["multiplier"] == pytest.approx(recorded.facts["multiplier_used"], abs=1e-7)
    if "case" in ours:
        assert ours["case"] == known["optim_case"]
    if "recovering" in ours:
        assert ours["recovering"] == 1 - known["optim_case"]
    if "passes" in ours:
        assert ours["passes"] == logged["Train/StopIter"]
    if "projection_passes" in ours:
        assert ours["projection_passes"] == logged["Train/SeconStageStopIter"]


def check_tries(recorded: Update, ours: dict[str, float]) -> None:
    if "Misc/AcceptanceStep" in recorded.facts["logged"] and "line_search_tries" in ours:
        tries = ours["line_search_tries"] if ours["accepted_step"] else 0
        assert tries == recorded.facts["logged"]["Misc/AcceptanceStep"]


def check_critics(recorded: Update, ours: Parts) -> None:
    for head in range(2):
        assert error(ours.critics[head], recorded.before.critics[head], recorded.after.critics[head]) < TOLERANCE


@pytest.mark.parametrize(("name", "run"), [case for case in CASES if case.values[0] not in FIRST_ORDER])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["double", "single"])
def test_trust_region_updates_are_the_published_ones(name: str, run: dict[str, Any], dtype: torch.dtype) -> None:
    replay = Replay(name, run, dtype)
    for recorded in updates(name, run):
        key = (name, recorded.run, recorded.epoch)
        ours, facts = replay.update(recorded)
        check_critics(recorded, ours)
        check_facts(recorded, facts)
        if key in BELOW_RESOLUTION:
            assert np.abs(ours.actor - recorded.before.actor).max() < RESOLUTION[dtype]
        elif key in DECIDED_BY_ROUNDING:
            mine, theirs = ours.actor - recorded.before.actor, recorded.after.actor - recorded.before.actor
            assert mine @ theirs / np.linalg.norm(mine) / np.linalg.norm(theirs) > 0.99
        else:
            check_tries(recorded, facts)
            allowed = ILL_CONDITIONED | (ILL_CONDITIONED_IN_SINGLE if dtype == torch.float32 else {})
            assert error(ours.actor, recorded.before.actor, recorded.after.actor) < allowed.get(key, TOLERANCE)


@pytest.mark.parametrize(("name", "run"), [case for case in CASES if case.values[0] in FIRST_ORDER])
def test_first_order_updates_are_the_published_ones(
    name: str, run: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = Replay(name, run)
    for recorded in updates(name, run):
        if name == "cup":
            check_stages(replay, recorded, monkeypatch)
        ours, facts = replay.update(recorded)
        check_critics(recorded, ours)
        check_facts(recorded, facts)
        assert error(ours.actor, recorded.before.actor, recorded.after.actor) < TOLERANCE


def check_stages(replay: Replay, recorded: Update, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have CUP's actor compared between its stages in the update that follows."""
    plain = CUP.run
    stages: list[int] = []

    def watched(self: CUP, *args: Any) -> Any:
        found = plain(self, *args)
        stages.append(1)
        if len(stages) == 1:
            assert error(self.actor.flat(), recorded.before.actor, recorded.middle) < TOLERANCE
        return found

    monkeypatch.setattr(replay.method, "run", lambda *args: watched(replay.method, *args))  # type: ignore[arg-type]


def test_every_published_algorithm_has_its_recordings() -> None:
    assert {case.values[0] for case in CASES} == set(ALGORITHMS)
    sets = {case.values[1]["set"] for case in CASES}
    assert sets >= {"small", "near", "iters", "hard", "zero"}
