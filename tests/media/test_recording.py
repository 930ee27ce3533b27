from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import sbtrpo
from sbtrpo.envs.view.graphics import NoGraphicsError
from sbtrpo.envs.view.render import ROBOT, View
from sbtrpo.media import recording, video
from sbtrpo.media.recording import LEAST_FONT, Film, Shot, Step, Take, Timing, flash, play_takes, record, select
from sbtrpo.media.video import Gif, Mp4, ffmpeg
from sbtrpo.runs import evaluation
from sbtrpo.runs.evaluation import subject
from sbtrpo.runs.export import export
from tests.drawing import can_draw

HOPPER, SWIMMER = "SafetyHopperVelocity-v1", "SafetySwimmerVelocity-v1"
COURIER = str(Path(__file__).parents[2] / "examples" / "courier.toml")
SMALL = {"width": 96, "height": 72, "fps": 10.0, "speed": 1.0}
NOTHING = View(np.zeros(1), None, None, np.zeros((0, 3)), 0, False)


def trained(folder: Path, task: str, seed: int, algo: str = "sb-trpo") -> Path:
    config = sbtrpo.TrainConfig(task=task, algo=algo, num_envs=4, steps_per_epoch=400, total_steps=400, seed=seed)
    return sbtrpo.train(config, out=folder, quiet=True)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two hoppers, which soon fall."""
    folder = tmp_path_factory.mktemp("runs")
    return [trained(folder / f"seed{seed}", HOPPER, seed) for seed in (0, 1)]


def video_size_and_frames(path: Path) -> tuple[tuple[int, int], int]:
    program = ffmpeg()
    assert program is not None
    command = [program, "-i", str(path), "-map", "0:v:0", "-f", "null", "-"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    size = re.search(r"Video: h264.*?, (\d+)x(\d+)", said)
    frames = re.findall(r"frame=\s*(\d+)", said)
    assert size
    return (int(size[1]), int(size[2])), int(frames[-1])


# ---- whole videos ----------------------------------------------------------------------------------------------------


def test_a_run_becomes_an_mp4_and_a_gif_with_every_frame_announced(runs: list[Path], tmp_path: Path) -> None:
    if not can_draw():
        with pytest.raises(NoGraphicsError, match="apt-get install"):
            record(runs[0], **SMALL)  # type: ignore[arg-type]
        return
    told: list[tuple[int, int]] = []
    out = tmp_path / "new" / "hopper.mp4"
    paths = record(runs[0], 2, out=out, progress=lambda *now: told.append(now), **SMALL)  # type: ignore[arg-type]
    assert paths == ([out] if ffmpeg() else []) + [out.with_suffix(".gif")]
    total = told[-1][1]
    assert told == [(k, total) for k in range(1, total + 1)]
    if ffmpeg():
        size, frames = video_size_and_frames(out)
        assert frames == total
        assert size[0] == 96
    with Image.open(out.with_suffix(".gif")) as picture:
        assert 1 < picture.n_frames <= total  # type: ignore[attr-defined]


def test_runs_side_by_side_play_the_same_layouts(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    if not can_draw():
        return
    seen: list[list[Take]] = []

    def spy(*arguments: object) -> list[Take]:
        seen.append(play_takes(*arguments))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr(recording, "play_takes", spy)
    paths = record(runs[0], 2, compare=[runs[1], runs[0]], **SMALL)  # type: ignore[arg-type]
    assert paths[-1] == runs[0] / "video.gif"
    with Image.open(paths[-1]) as picture:
        assert picture.size[0] == 2 * 96  # the run that was named twice is shown once
    one, other = seen
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_array_equal(mine[0].view.qpos, theirs[0].view.qpos)
    assert not np.array_equal(one[0][-1].view.qpos, other[0][-1].view.qpos)


def test_the_counters_show_what_an_evaluation_finds(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    if not can_draw():
        return
    seen: list[list[Take]] = []
    monkeypatch.setattr(recording, "play_takes", lambda *a: seen.append(play_takes(*a)) or seen[-1])  # type: ignore[arg-type, func-returns-value]
    record(runs[0], 3, seed=5, deterministic=True, **SMALL)  # type: ignore[arg-type]
    evaluated, _ = evaluation.play(sbtrpo.load_policy(runs[0]), HOPPER, 3, 5, True)
    last = [take[-1] for take in seen[0]]
    np.testing.assert_allclose([shot.total for shot in last], evaluated["return"])
    np.testing.assert_array_equal([shot.cost for shot in last], evaluated["cost"])
    np.testing.assert_array_equal([shot.step for shot in last], evaluated["length"])


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_the_heading_says_how_the_policies_act(
    runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_draw():
        return
    headings: list[str] = []
    monkeypatch.setattr(recording, "_write_videos", lambda film, *_: headings.append(film._heading))
    file = export(runs[0], "torchscript", tmp_path / "policy.pt")  # acts by its mean, whatever one wishes
    record(runs[0], 1, **SMALL)  # type: ignore[arg-type]
    record(file, 1, **SMALL)  # type: ignore[arg-type]
    record(runs[0], 1, compare=[file], deterministic=True, **SMALL)  # type: ignore[arg-type]
    record(lambda obs: np.zeros((len(obs), 3)), 1, task=HOPPER, **SMALL)  # type: ignore[arg-type]
    how = [heading.split(", ")[1] for heading in headings]
    assert how == ["sampled actions", "mean action", "mean action", "actions of their choice"]


def test_without_an_encoder_there_is_the_gif(runs: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "ffmpeg", lambda: None)
    if can_draw():
        paths = record(runs[0], 1, out=tmp_path / "a.mp4", **SMALL)  # type: ignore[arg-type]
        assert paths == [tmp_path / "a.gif"]
        assert not (tmp_path / "a.mp4").exists()
    assert "pip install 'sbtrpo[video]'" in video.NO_ENCODER


def test_an_interrupted_video_leaves_no_file(runs: list[Path], tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    if can_draw():
        with pytest.raises(KeyboardInterrupt):
            record(runs[0], 1, out=tmp_path / "a.mp4", progress=interrupt, **SMALL)  # type: ignore[arg-type]
        assert list(tmp_path.iterdir()) == []


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_runs_on_copies_of_one_task_file_are_compared(tmp_path: Path) -> None:
    runs = [trained(tmp_path / f"seed{seed}", COURIER, seed) for seed in (0, 1)]
    assert recording._same_task([subject(run) for run in runs]) == str(runs[0] / "task.toml")


def test_runs_on_different_tasks_are_not_compared(runs: list[Path], tmp_path: Path) -> None:
    other = trained(tmp_path / "other", "ToyCorridor-v0", 0)
    with pytest.raises(ValueError, match=f"only runs on the same task .*{HOPPER} of .* in .*ToyCorridor-v0 of"):
        record(runs[0], compare=[other])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"episodes": 0}, "episodes must be at least 1"),
        ({"out": "video.avi"}, r"ends in \.mp4 or \.gif"),
        ({"speed": 0}, "above 0"),
        ({"compare": ["a", "b", "c", "d"]}, "at most 4 runs"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], said: str, runs: list[Path]) -> None:
    with pytest.raises(ValueError, match=said):
        record(runs[0], **options)  # type: ignore[arg-type]


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="not the folder of a run"):
        record(tmp_path)


# ---- which steps are shown, and what is red in them ------------------------------------------------------------------


def take(red_at: dict[int, set[int]], length: int = 20) -> Take:
    return [Shot(NOTHING, frozenset(red_at.get(k, ())), k, 0.0, float(k in red_at), np.zeros(2)) for k in range(length)]


@pytest.mark.parametrize(
    ("seconds_a_step", "fps", "speed", "every", "shown_fps"),
    [(0.02, 25, 1, 2, 25), (0.02, 20, 2, 5, 20), (0.04, 20, 2, 2, 25), (0.1, 20, 1, 1, 10)],
)
def test_a_video_runs_at_the_speed_asked_for(
    seconds_a_step: float, fps: float, speed: float, every: int, shown_fps: float
) -> None:
    timing = Timing.of(seconds_a_step, fps, speed)
    assert timing.every == every
    assert timing.fps == pytest.approx(min(shown_fps, fps))


def test_the_last_step_is_always_shown() -> None:
    assert select(take({}, length=8), Timing(3, 10)) == [0, 3, 6, 7]
    assert select(take({}, length=7), Timing(3, 10)) == [0, 3, 6]


def test_a_cost_between_two_pictures_is_red_in_the_next_and_for_a_while() -> None:
    episode, timing = take({4: {-1, 2}}), Timing(every=3, fps=10)  # 0.2 seconds are two pictures
    reds = {shot: flash(episode, shot, timing) for shot in select(episode, timing)}
    assert [shot for shot, red in reds.items() if red] == [6, 9]
    assert reds[6] == {-1, 2}


def test_a_violation_is_written_into_the_picture_and_stays_on_the_course() -> None:
    """Whatever caused the cost: no object is named here, as with a fault."""
    episode, timing = take({}, length=12), Timing(every=1, fps=5)  # 0.2 seconds are one picture
    for shot in episode[4:]:
        shot.cost = 1.0
    grey = np.full((480, 640, 3), 128, np.uint8)
    renderer = SimpleNamespace(width=640, height=480, draw=lambda *_: grey)
    film = Film(renderer, [[episode]], ["sb-trpo"], "a task", timing)  # type: ignore[arg-type]
    pictures = list(film.frames())[: len(episode)]
    red = [(picture[..., 0] > 180) & (picture[..., 1] < 40) for picture in pictures]
    top = film._title
    marks = [mark[top + 10 : top + 80, 10:160].sum() > 500 for mark in red]
    assert marks == [k == 4 for k in range(12)]
    course = [mark[top + 481, int(3.2 / 11 * 640) : int(3.8 / 11 * 640)].all() for mark in red]
    assert course == [k >= 4 for k in range(12)]
    assert not red[-1][top + 481, int(5 / 11 * 640) :].any()


@pytest.mark.parametrize("width", [320, 640])
def test_long_lines_are_written_smaller_until_they_fit(width: int) -> None:
    heading, caption = "SafetyHalfCheetahVelocity-v1, sampled actions, 2 times real time", f"cppo_pid ({'a' * 40})"
    renderer = SimpleNamespace(width=width, height=480)
    film = Film(renderer, [[take({})]], [caption], heading, Timing(1, 10))  # type: ignore[arg-type]
    assert film._fonts["heading"].getlength(heading) < width
    assert film._fonts["caption 0"].getlength(caption) < width or film._fonts["caption 0"].size == LEAST_FONT


def test_a_cost_in_the_step_that_ends_an_episode_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    class Blind:
        def view(self, world: int) -> View:
            return NOTHING

        def concerned(self, world: int, violated: list[str]) -> frozenset[int]:
            return frozenset({ROBOT} if violated else ())

    def steps(*_: object) -> Iterator[Step]:
        for cost in (0.0, 1.0):
            now, over = np.array([cost]), np.array([cost > 0])
            yield Step(np.array([True]), over, now, now, {"cost_strip": now})

    monkeypatch.setattr(recording, "first_episodes", steps)
    (episode,) = play_takes(None, sbtrpo.make_pool("ToyCorridor-v0", 1), Blind(), 0, False)  # type: ignore[arg-type]
    assert [shot.red for shot in episode] == [frozenset(), frozenset(), {ROBOT}]


# ---- files -----------------------------------------------------------------------------------------------------------


def test_gifs_are_smaller_and_play_at_the_same_speed(tmp_path: Path) -> None:
    gif = Gif(tmp_path / "a.gif", (960, 720), 20.0)
    for k in range(10):
        gif.add(np.full((720, 960, 3), 25 * k, np.uint8))
    gif.close()
    with Image.open(tmp_path / "a.gif") as picture:
        assert picture.size == (480, 360)
        assert picture.n_frames == 5  # type: ignore[attr-defined]
        assert picture.info["duration"] == 100


def test_what_the_encoder_says_is_passed_on(tmp_path: Path) -> None:
    program = ffmpeg()
    if program is not None:
        writer = Mp4(program, tmp_path / "missing" / "a.mp4", (32, 32), 10)
        with pytest.raises(OSError, match=r"could not write .*a\.mp4: "):
            writer.close()
