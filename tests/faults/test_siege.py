"""The fault test can fail: what is lost is noticed, by its judge and in a whole round."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import sbtrpo
from sbtrpo import TrainConfig
from sbtrpo.runs import checkpoint
from tests.faults import judge
from tests.faults.__main__ import play
from tests.faults.commands import Ended
from tests.faults.judge import Lost
from tests.faults.kinds import KINDS, schedule
from tests.faults.site import Site

CONFIG = TrainConfig(task="ToyCorridor-v0", num_envs=4, steps_per_epoch=200, total_steps=600, hidden=(4,))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sbtrpo.train(CONFIG, tmp_path_factory.mktemp("siege") / "whole", quiet=True)


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "run"))


def lose_row(run: Path) -> None:
    lines = (run / "metrics.csv").read_text().splitlines(keepends=True)
    (run / "metrics.csv").write_text("".join(lines[:1] + lines[2:]))


def change_digit(run: Path) -> None:
    text = (run / "metrics.csv").read_text()
    (run / "metrics.csv").write_text(text[:-3] + ("1" if text[-3] != "1" else "2") + text[-2:])


def lose_episodes(run: Path) -> None:
    sorted((run / "episodes.parquet").iterdir())[0].unlink()


def change_weight(run: Path) -> None:
    newest = run / "checkpoints" / "epoch-000003"
    content = checkpoint.load(newest)
    content["state"]["policy"]["params"][-1][0] += 1e-6
    checkpoint.save(newest, content)


def tear_table(run: Path) -> None:
    (run / "timing.csv").write_bytes((run / "timing.csv").read_bytes()[:-5])


def tear_picture(run: Path) -> None:
    (run / "curves.png").write_bytes((run / "curves.png").read_bytes()[:-200])


def leave_rubbish(run: Path) -> None:
    (run / "checkpoints" / ".tmp-epoch-000004").mkdir()


def forget_epochs(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    (run / "summary.json").write_text(json.dumps({**summary, "epochs": 2}))


@pytest.mark.parametrize(
    "harm",
    [lose_row, change_digit, lose_episodes, change_weight, tear_table, tear_picture, leave_rubbish, forget_epochs],
)
def test_the_judge_notices_what_is_lost(harm: Callable[[Path], None], run: Path, whole: Path) -> None:
    judge.expect_same_run(run, whole)
    harm(run)
    with pytest.raises(Lost):
        judge.expect_same_run(run, whole)


def test_the_judge_notices_epochs_that_nobody_can_go_on_from(run: Path) -> None:
    judge.expect_kept(run, 0)
    shutil.rmtree(run / "checkpoints" / "epoch-000003")
    judge.expect_kept(run, 1)
    with pytest.raises(Lost, match="has 3 epochs"):
        judge.expect_kept(run, 0)


@pytest.mark.parametrize(
    ("status", "output"),
    [(0, ""), (1, "sbtrpo: x/run is full"), (2, "Traceback\nsbtrpo: x/run is full"), (2, "sbtrpo: full"), (2, "")],
)
def test_the_judge_wants_one_sentence_that_names_the_place(status: int, output: str) -> None:
    judge.expect_refusal(Ended(("train",), 2, "epoch 1\nsbtrpo: x/run is full\n"), "x/run")
    with pytest.raises(Lost):
        judge.expect_refusal(Ended(("train",), status, output), "x/run")


def test_a_siege_has_every_kind_and_an_order_that_its_seed_decides() -> None:
    assert len(schedule(0)) == 208
    assert set(schedule(0)) == set(KINDS)
    assert [kind.name for kind in schedule(0)] == [kind.name for kind in schedule(0)]
    assert [kind.name for kind in schedule(0)] != [kind.name for kind in schedule(1)]


@pytest.mark.slow
@pytest.mark.parametrize("sabotage", ["", "row", "episodes", "weights"])
def test_a_round_notices_a_program_that_loses_something(sabotage: str, tmp_path: Path) -> None:
    """Where an undamaged program survives, one that was broken on purpose does not."""
    number = next(k for k, kind in enumerate(schedule(0)) if kind.name == "resume, kill -9")
    _, outcome, words = play(Site(tmp_path, sabotage=sabotage), number)
    assert outcome == ("lost" if sabotage else "survived"), words
    assert not sabotage or np.any([word in words for word in ("differs", "differ", "weights", "damaged")]), words
