"""Every run is brought to its end once, or is listed with its error."""

from __future__ import annotations

import io
import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest
from rich.console import Console

from sbtrpo.benchmark import schedule
from sbtrpo.benchmark.command import print_outcome
from sbtrpo.benchmark.local import LocalLauncher, describe_exit
from sbtrpo.benchmark.plan import run_path
from sbtrpo.benchmark.schedule import Result, Scheduler
from sbtrpo.benchmark.states import LOG, Failure, Progress, last_words, progress, state
from sbtrpo.benchmark.view import BenchmarkView, Row
from sbtrpo.benchmark.worker import BUSY, THREAD_VARIABLES, Job, environment, work
from sbtrpo.runs.claims import Claim
from tests.benchmark.folders import FakeLauncher, finish, toy, write_run

RUNS = [toy(seed=seed) for seed in range(4)]


def train(job: Job) -> int:
    """What a good worker does."""
    for config in job.runs:
        finish(job.root, config)
    return 0


def crash(job: Job) -> int:
    for path in job.paths():
        path.mkdir(parents=True, exist_ok=True)
        (path / LOG).write_text("Traceback ...\nValueError: no good\n\n")
    return 1


def started(launcher: FakeLauncher) -> list[int]:
    return [config.seed for job in launcher.started for config in job.runs]


def statuses(result: Result) -> Counter[str]:
    return Counter(run.status for run in result.runs)


def test_all_runs_are_brought_to_their_ends(tmp_path: Path) -> None:
    launcher = FakeLauncher(train)
    result = Scheduler(RUNS, tmp_path, launcher).run()
    assert started(launcher) == [0, 1, 2, 3]
    assert statuses(result) == {"done": 4}
    assert result.exit_status == 0


def test_finished_runs_are_skipped_and_interrupted_ones_taken_up(tmp_path: Path) -> None:
    finish(tmp_path, RUNS[0])
    write_run(tmp_path, RUNS[1], [(1.0, 2.0, 0.5, 0.5)])
    launcher = FakeLauncher(train)
    output = io.StringIO()
    result = Scheduler(RUNS, tmp_path, launcher, view=BenchmarkView(console=Console(file=output, width=200))).run()
    assert started(launcher) == [1, 2, 3]
    assert "1 done before, 1 to resume, 2 to begin" in output.getvalue()
    assert result.exit_status == 0
    launcher = FakeLauncher(train)
    assert Scheduler(RUNS, tmp_path, launcher).run().exit_status == 0
    assert not launcher.started


def test_steps_that_make_no_whole_epoch_are_told_once(tmp_path: Path) -> None:
    output = io.StringIO()
    view = BenchmarkView(console=Console(file=output, width=200))
    runs = [toy(seed=seed, total_steps=350) for seed in range(2)]
    Scheduler(runs, tmp_path, FakeLauncher(train), view=view).run()
    assert output.getvalue().count("of total_steps, 350, the run takes 300: 3 whole epochs of 100") == 1


def test_a_failed_run_is_tried_again_after_the_others(tmp_path: Path) -> None:
    tries: Counter[int] = Counter()

    def once(job: Job) -> int:
        tries[job.runs[0].seed] += 1
        return crash(job) if job.runs[0].seed == 0 and tries[0] == 1 else train(job)

    launcher = FakeLauncher(once, slots=1)
    result = Scheduler(RUNS, tmp_path, launcher, retries=1).run()
    assert started(launcher) == [0, 1, 2, 3, 0]
    assert result.exit_status == 0
    assert not (run_path(tmp_path, RUNS[0]) / "failed.json").exists()


def test_a_run_that_keeps_failing_is_listed_with_its_error_and_its_log(tmp_path: Path) -> None:
    def all_but_one(job: Job) -> int:
        return crash(job) if job.runs[0].seed == 2 else train(job)

    launcher = FakeLauncher(all_but_one)
    result = Scheduler(RUNS, tmp_path, launcher, retries=2).run()
    assert started(launcher).count(2) == 3
    assert statuses(result) == {"done": 3, "failed": 1}
    assert result.exit_status == 1
    path = run_path(tmp_path, RUNS[2])
    assert Failure.read(path) == Failure("ValueError: no good", 3)
    assert state(path, RUNS[2]) == "failed"
    output = io.StringIO()
    print_outcome(result, Console(file=output, width=20), quiet=True)
    assert output.getvalue().splitlines() == [
        f"failed after 3 attempts: {path}",
        "    ValueError: no good",
        f"    log: {path / LOG}",
    ]
    again = FakeLauncher(train)
    assert Scheduler(RUNS, tmp_path, again).run().exit_status == 0
    assert started(again) == [2]


def test_a_worker_that_was_killed_is_said_to_have_been(tmp_path: Path) -> None:
    launcher = FakeLauncher(lambda job: -9, error=describe_exit(-9))
    result = Scheduler(RUNS[:1], tmp_path, launcher, retries=0).run()
    assert result.runs[0].error == "its process was ended by SIGKILL; was there enough memory?"
    assert describe_exit(1) == ""


def test_runs_of_another_command_are_waited_for_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "LOOK_ELSEWHERE_SECONDS", 0.0)
    waits = iter(range(100))

    class Waiting(FakeLauncher):
        def wait(self, seconds: float) -> list[schedule.Ended]:
            if next(waits) == 3:
                finish(tmp_path, RUNS[0])
            return super().wait(seconds)

    launcher = Waiting(lambda job: BUSY if job.runs[0].seed == 0 else train(job))
    with Claim(run_path(tmp_path, RUNS[0])):
        result = Scheduler(RUNS, tmp_path, launcher).run()
    assert started(launcher) == [0, 1, 2, 3]
    assert result.exit_status == 0


def test_a_run_that_another_command_drops_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "LOOK_ELSEWHERE_SECONDS", 0.0)
    answers = iter([BUSY, 0])

    def behave(job: Job) -> int:
        answer = next(answers)
        return answer if answer == BUSY else train(job)

    launcher = FakeLauncher(behave)
    result = Scheduler(RUNS[:1], tmp_path, launcher).run()
    assert started(launcher) == [0, 0]
    assert result.exit_status == 0
    assert result.runs[0].attempts == 0


def test_ctrl_c_starts_nothing_new_and_leaves_the_rest_to_be_resumed(tmp_path: Path) -> None:
    class Stopping(FakeLauncher):
        def wait(self, seconds: float) -> list[schedule.Ended]:
            if self.started and not self.stopped:  # as a worker, which ends when it is told
                os.kill(os.getpid(), signal.SIGINT)
                write_run(tmp_path, RUNS[0], [(1.0, 2.0, 0.5, 0.5)])
                return []
            return super().wait(seconds)

    launcher = Stopping(lambda job: 0, slots=1)
    output = io.StringIO()
    result = Scheduler(RUNS, tmp_path, launcher, view=BenchmarkView(console=Console(file=output, width=200))).run()
    assert launcher.stopped
    assert not launcher.killed
    assert started(launcher) == [0]
    assert statuses(result) == {"interrupted": 4}
    assert result.exit_status == 130
    assert "stopping" in output.getvalue()
    assert state(run_path(tmp_path, RUNS[0]), RUNS[0]) == "interrupted"
    assert Scheduler(RUNS, tmp_path, FakeLauncher(train)).run().exit_status == 0


def test_a_second_ctrl_c_waits_for_nobody(tmp_path: Path) -> None:
    class Deaf(FakeLauncher):
        def wait(self, seconds: float) -> list[schedule.Ended]:
            os.kill(os.getpid(), signal.SIGINT)
            return []

    launcher = Deaf(train)
    result = Scheduler(RUNS, tmp_path, launcher).run()
    assert launcher.stopped
    assert launcher.killed
    assert result.exit_status == 130


def test_packs_hold_runs_of_one_task_and_shape(tmp_path: Path) -> None:
    runs = [*RUNS, toy(seed=5, num_envs=4), toy(seed=6, algo="cpo"), toy(seed=7, steps_per_epoch=150)]
    write_run(tmp_path, RUNS[1], [(1.0, 2.0, 0.5, 0.5)])
    launcher, output = FakeLauncher(train, slots=9), io.StringIO()
    view = BenchmarkView(console=Console(file=output, width=200))
    Scheduler(runs, tmp_path, launcher, pack=3, view=view).run()
    assert (
        f"5 runs of {RUNS[0].task} make 3 packs, as only runs at one epoch share a simulator, and these stand at 2,"
        " from 0 to 1\n"
    ) in output.getvalue()
    assert [[config.seed for config in job.runs] for job in launcher.started] == [[0, 2, 3], [1], [5], [6], [7]]


@pytest.mark.parametrize(("pack", "resumed"), [(1, 1), (2, 2), (4, 0), (4, 4)])
def test_packs_that_are_as_few_as_can_be_need_no_word(tmp_path: Path, pack: int, resumed: int) -> None:
    for config in RUNS[:resumed]:
        write_run(tmp_path, config, [(1.0, 2.0, 0.5, 0.5)])
    output = io.StringIO()
    view = BenchmarkView(console=Console(file=output, width=200))
    Scheduler(RUNS, tmp_path, FakeLauncher(train), pack=pack, view=view).run()
    assert "share a simulator" not in output.getvalue()


def test_a_run_that_failed_in_a_pack_is_tried_again_alone(tmp_path: Path) -> None:
    def together(job: Job) -> int:
        return crash(job) if len(job.runs) > 1 else train(job)

    launcher = FakeLauncher(together)
    result = Scheduler(RUNS, tmp_path, launcher, pack=2).run()
    assert [len(job.runs) for job in launcher.started] == [2, 2, 1, 1, 1, 1]
    assert result.exit_status == 0


@pytest.mark.parametrize(
    ("workers", "threads", "expected"), [(1, 0, (1, 8)), (3, 0, (3, 2)), (25, 0, (8, 1)), (25, 4, (2, 4))]
)
def test_workers_never_crowd_the_cores(
    workers: int, threads: int, expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbtrpo.benchmark.local.available_cores", lambda: 8)
    launcher = LocalLauncher(workers, threads)
    assert (launcher.slots, launcher.threads) == expected
    assert launcher.slots * launcher.threads <= 8
    assert {environment()[name] for name in THREAD_VARIABLES} == {"1"}


def test_a_job_survives_its_way_to_the_worker(tmp_path: Path) -> None:
    job = Job(tmp_path, (toy(hidden=(32, 16)), toy(algo="cpo", first_cost_zero=False)), threads=3)
    assert Job.from_json(job.to_json()) == job


def test_a_worker_leaves_what_is_done_and_what_others_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finish(tmp_path, RUNS[0])
    assert work(Job(tmp_path, (RUNS[0],))) == 0
    with Claim(run_path(tmp_path, RUNS[1])):
        assert work(Job(tmp_path, (RUNS[1],))) == BUSY
    assert "is being worked on by" in capsys.readouterr().out


def test_states_are_read_from_folders(tmp_path: Path) -> None:
    config = RUNS[0]
    path = run_path(tmp_path, config)
    assert state(path, config) == "pending"
    assert progress(path) == Progress()
    write_run(tmp_path, config, [(1.0, 2.0, 0.5, 0.5), (1.5, 0.25, 0.5, 0.5)])
    with (path / "metrics.csv").open("a") as file:
        file.write("3,300,9.9")  # being written
    assert progress(path) == Progress(2, 1.5, 0.25)
    assert state(path, config) == "interrupted"
    with Claim(path):
        assert state(path, config) == "running"
    (path / "summary.json").write_text(json.dumps({"epochs": 2}))  # of a shorter run
    assert state(path, config) == "interrupted"
    finish(tmp_path, config)
    assert state(path, config) == "done"
    assert last_words(path / LOG) == ""


def test_bad_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="workers must be at least 1, got 0"):
        LocalLauncher(0)
    with pytest.raises(ValueError, match="pack must be at least 1, got 0"):
        Scheduler(RUNS, tmp_path, FakeLauncher(train), pack=0)
    with pytest.raises(ValueError, match="retries must be at least 0, got -1"):
        Scheduler(RUNS, tmp_path, FakeLauncher(train), retries=-1)


def test_the_live_table_shows_what_runs_and_the_time_left() -> None:
    output = io.StringIO()
    with BenchmarkView(console=Console(file=output, force_terminal=True, width=100)) as view:
        view.update([Row("task/algo/seed0", 3, 10, 1.234, float("nan"))], {"running": 1, "done": 2, "failed": 1}, 125)
    text = output.getvalue()
    assert "task/algo/seed0" in text
    assert "3/10" in text
    assert "1.23" in text
    assert "1 running, 2 done, 1 failed; about 2 min left" in text


def test_the_time_left_follows_the_speed_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scheduler(RUNS[:2], tmp_path, FakeLauncher(train))
    assert scheduler._seconds_left() is None
    scheduler.runs[0].progress = Progress(2)
    scheduler.runs[0].status = "running"
    scheduler._begun = 0.0
    monkeypatch.setattr(schedule.time, "monotonic", lambda: 10.0)
    assert scheduler._seconds_left() == pytest.approx(10 / 2 * 4)
