"""Videos of trained policies: whole episodes with their costs marked, of one run or of several side by side.

The episodes are played first. Of each step a `View` is kept, a few hundred numbers, from which its picture is drawn
later. All runs of a comparison play the same layouts: the first episodes of a pool's worlds depend on the seed alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from sbtrpo.config.run import Which
from sbtrpo.config.tasks import is_foreign
from sbtrpo.envs import Pool, get_spec, make_pool
from sbtrpo.envs.arrays import to_numpy
from sbtrpo.envs.constraints import TOTAL
from sbtrpo.envs.streams import Floats
from sbtrpo.envs.view.render import ROBOT, Frame, Renderer
from sbtrpo.envs.view.stage import Camera
from sbtrpo.files import check_writable
from sbtrpo.media.pictures import Pictures, pool_with_pictures
from sbtrpo.media.video import Gif, Mp4, ffmpeg
from sbtrpo.nets.policy import Policy
from sbtrpo.runs.actors import Actor
from sbtrpo.runs.evaluation import Subject, acting, subject

FrameProgress: TypeAlias = Callable[[int, int], None]
"""Called with the number of frames done and the number of all frames."""

MAX_PANELS = 4
FLASH_SECONDS = 0.2
"""An object that caused a cost stays red for at least this long."""
END_SECONDS = 1.0
"""How long the last picture of an episode is shown."""
VIOLATION = "violation"
"""What is written into a picture while a cost arises."""
LEAST_FONT = 6
"""Pixels: smaller letters cannot be read."""
_INK, _FAINT, _RED, _GREEN, _PAPER = "#1c1e22", "#6b7078", "#c1121f", "#1b8a3c", "#f4f5f7"


# ---- playing ---------------------------------------------------------------------------------------------------------


@dataclass
class Step:
    """One step of all worlds; it counts for those whose first episode was still running."""

    running: NDArray[np.bool_]
    """(N,) the worlds for which this step counts."""
    ended: NDArray[np.bool_]
    """(N,) the worlds whose first episode this step ended. They are already at the start of their next one."""
    reward: Floats
    cost: Floats
    """A fault costs 1."""
    info: dict[str, Any]


def first_episodes(pool: Pool, policy: Policy | Actor, seed: int, deterministic: bool) -> Iterator[Step]:
    """Play the first episode of every world of a pool that was just reset, step by step."""
    act = acting(policy, pool, deterministic, seed)
    running = np.ones(pool.num_worlds, bool)
    while running.any():
        _, reward, cost, terminated, truncated, info = pool.step(act(to_numpy(pool.last_obs)))
        ended = running & to_numpy(terminated | truncated)
        yield Step(running.copy(), ended, to_numpy(reward), to_numpy(cost + info["fault"]), info)
        running &= ~ended


def violated_components(info: dict[str, Any], names: Sequence[str], world: int) -> list[str]:
    """Names of the cost components that were above 0 in a world."""
    return [name for name in names if float(info[name][world]) > 0]


@dataclass
class Shot:
    """What a video shows after one step: the scene, and the sums so far."""

    view: Any
    """As the renderer has it."""
    red: frozenset[int]
    step: int
    total: float
    cost: float
    trail: Floats
    """(2,) position of the robot; NaN for tasks without a floor plan."""


Take: TypeAlias = list[Shot]
"""One episode of one run."""


def play_takes(
    policy: Policy | Actor, pool: Pool, renderer: Renderer | Pictures, seed: int, deterministic: bool
) -> list[Take]:
    """Play one episode in every world, with what a video shows of it."""
    pool.reset(seed)
    worlds = range(pool.num_worlds)
    takes = [[Shot(renderer.view(world), frozenset(), 0, 0.0, 0.0, _position(pool, world))] for world in worlds]
    totals, costs = np.zeros(pool.num_worlds), np.zeros(pool.num_worlds)
    names = pool.task.cost_names
    for number, step in enumerate(first_episodes(pool, policy, seed, deterministic), start=1):
        totals += step.running * step.reward
        costs += step.running * step.cost
        for world in np.flatnonzero(step.running).tolist():
            violated = violated_components(step.info, names, world) or [TOTAL] * bool(step.cost[world] > 0)
            last = takes[world][-1]
            if step.ended[world]:  # the world is in its next episode: show the last scene with the new sums
                red = last.red | {ROBOT} if violated else frozenset[int]()
                shot = Shot(last.view, red, number, totals[world], costs[world], last.trail)
            else:
                red = renderer.concerned(world, violated)
                shot = Shot(renderer.view(world), red, number, totals[world], costs[world], _position(pool, world))
            takes[world].append(shot)
    return takes


def _position(pool: Pool, world: int) -> Floats:
    worlds = getattr(pool.task, "worlds", None)
    return np.full(2, np.nan) if worlds is None else np.array(to_numpy(worlds.position[world]))[:2]


# ---- frames ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timing:
    """Which steps are shown, and how fast."""

    every: int
    """One step in `every` is shown."""
    fps: float

    @classmethod
    def of(cls, seconds_a_step: float, fps: float, speed: float) -> Timing:
        """The timing that runs `speed` times as fast as the simulated clock, with at most `fps` pictures a second."""
        every = max(1, round(speed / (fps * seconds_a_step)))
        return cls(every, min(fps, speed / (every * seconds_a_step)))


def select(take: Take, timing: Timing) -> list[int]:
    """Indices of the shots to show: one in `every`, and the last."""
    kept = list(range(0, len(take), timing.every))
    return kept if kept[-1] == len(take) - 1 else [*kept, len(take) - 1]


def flash(take: Take, shot: int, timing: Timing) -> frozenset[int]:
    """Which objects are red in a picture: those that caused a cost since the last picture or a moment ago."""
    return frozenset().union(*(s.red for s in take[_moment(shot, timing) : shot + 1]))


def violated(take: Take, shot: int, timing: Timing) -> bool:
    """Whether a cost arose since the last picture or a moment ago, whatever caused it."""
    return bool(np.isin(costly_steps(take), range(_moment(shot, timing), shot + 1)).any())


def costly_steps(take: Take) -> NDArray[np.int64]:
    """The steps that cost."""
    return np.flatnonzero(np.diff([shot.cost for shot in take]) > 0) + 1


def _moment(shot: int, timing: Timing) -> int:
    """The first of the steps that a picture tells of."""
    return max(0, shot - timing.every * max(1, math.ceil(FLASH_SECONDS * timing.fps)) + 1)


class Film:
    """The frames of a video: the episodes one after the other, runs side by side."""

    def __init__(
        self,
        renderer: Renderer | Pictures,
        takes: Sequence[Sequence[Take]],
        captions: Sequence[str],
        heading: str,
        timing: Timing,
    ) -> None:
        """`takes` has one list of episodes for each run, `captions` a line for each."""
        self._renderer, self._takes, self._captions, self._heading = renderer, takes, captions, heading
        self.timing = timing
        self._bar = 2 * (max(44, renderer.height // 8) // 2)
        self._title = 2 * (self._bar // 3)
        small, large = round(0.29 * self._bar), round(0.34 * self._bar)
        self._fonts = {"small": _font(small), "large": _font(large)}
        self._edge = renderer.width // 40
        beside = self._fonts["large"].getlength("reward \N{MINUS SIGN}1000.00") + 3 * self._edge
        for k, caption in enumerate(captions):
            self._fonts[f"caption {k}"] = _fitting(caption, small, renderer.width - beside)
        self._fonts["heading"] = _fitting(heading, large, self.size[0] - 2 * self._edge)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of a frame; both are even, because encoders require it."""
        width = self._renderer.width * len(self._takes)
        height = self._renderer.height + self._bar + self._title
        return width - width % 2, height - height % 2

    def __len__(self) -> int:
        hold = round(END_SECONDS * self.timing.fps)
        return sum(self._longest(k) + hold for k in range(len(self._takes[0])))

    def _longest(self, episode: int) -> int:
        return max(len(select(takes[episode], self.timing)) for takes in self._takes)

    def frames(self) -> Iterator[Frame]:
        """All frames, (height, width, 3) each."""
        for episode in range(len(self._takes[0])):
            shown = [select(takes[episode], self.timing) for takes in self._takes]
            panels: list[Image.Image] = []
            for k in range(self._longest(episode)):
                for i, (takes, shots) in enumerate(zip(self._takes, shown, strict=True)):
                    if k < len(shots):  # a run whose episode is over keeps its last picture
                        panel = self._panel(i, takes[episode], shots[k], episode)
                        panels = [*panels[:i], panel, *panels[i + 1 :]]
                frame = self._compose(panels)
                yield frame
            for _ in range(round(END_SECONDS * self.timing.fps)):
                yield frame

    def _panel(self, run: int, take: Take, number: int, episode: int) -> Image.Image:
        """The picture of one run, with its line of numbers below."""
        shot = take[number]
        trail = np.array([s.trail for s in take[: number + 1]])
        red = flash(take, number, self.timing)
        picture = self._renderer.draw(shot.view, red, trail if np.isfinite(trail).all() else None)
        panel = Image.new("RGB", (self._renderer.width, self._renderer.height + self._bar), _PAPER)
        panel.paste(Image.fromarray(picture), (0, 0))
        over, pen = number == len(take) - 1, ImageDraw.Draw(panel)
        lit = violated(take, number, self.timing)
        self._write_numbers(pen, run, shot, episode, lit, over)
        self._draw_course(pen, take, number)
        return panel

    def _draw_course(self, pen: ImageDraw.ImageDraw, take: Take, number: int) -> None:
        """How much of the episode is over, with a red tick at every step so far that cost."""
        top, bottom = self._renderer.height, self._renderer.height + max(3, self._bar // 12)
        a_step = self._renderer.width / max(1, len(take) - 1)
        pen.rectangle((0, top, number * a_step, bottom), "#c9ccd1")
        for step in costly_steps(take[: number + 1]).tolist():
            pen.rectangle(((step - 1) * a_step, top, max(step * a_step, (step - 1) * a_step + 2), bottom), _RED)

    def _write_numbers(
        self, pen: ImageDraw.ImageDraw, run: int, shot: Shot, episode: int, lit: bool, over: bool
    ) -> None:
        width, height, bar = self._renderer.width, self._renderer.height, self._bar
        small, large = self._fonts["small"], self._fonts["large"]
        edge, upper, lower = self._edge, height + bar // 4, height + 3 * bar // 4
        episodes = len(self._takes[run])
        pen.text((edge, upper), self._captions[run], _INK, self._fonts[f"caption {run}"], anchor="lm")
        pen.text((edge, lower), f"episode {episode + 1} of {episodes}   step {shot.step}", _FAINT, small, anchor="lm")
        cost = f"cost {shot.cost:g}"
        colour = _RED if shot.cost > 0 else _GREEN
        box = pen.textbbox((width - edge, lower), cost, large, anchor="rm")
        if lit:  # while costs arise, the counter is lit and the picture marked
            self._badge(pen, box)
            mark = (2 * edge, 2 * edge)
            self._badge(pen, pen.textbbox(mark, VIOLATION, large, anchor="la"))
            pen.text(mark, VIOLATION, "white", large, anchor="la")
        pen.text((width - edge, lower), cost, "white" if lit else colour, large, anchor="rm")
        reward = f"reward {shot.total:.2f}".replace("-", "\N{MINUS SIGN}")
        pen.text((width - edge, upper), reward, _INK, large, anchor="rm")
        if lit or over:
            pen.rectangle((0, 0, width - 1, height - 1), outline=_RED if lit or shot.cost > 0 else _GREEN, width=4)
        if over:
            verdict = "unsafe" if shot.cost > 0 else "safe"
            pen.text((width - 2 * edge, 2 * edge), verdict, colour, large, anchor="ra")

    def _badge(self, pen: ImageDraw.ImageDraw, box: tuple[float, float, float, float]) -> None:
        """A red ground for a text."""
        pad = self._bar // 12
        pen.rounded_rectangle((box[0] - pad, box[1] - pad, box[2] + pad, box[3] + pad), pad, _RED)

    def _compose(self, panels: Sequence[Image.Image]) -> Frame:
        canvas = Image.new("RGB", self.size, _PAPER)
        pen = ImageDraw.Draw(canvas)
        pen.text((self.size[0] // 2, self._title // 2), self._heading, _INK, self._fonts["heading"], anchor="mm")
        for i, panel in enumerate(panels):
            canvas.paste(panel, (i * self._renderer.width, self._title))
            if i:
                x = i * self._renderer.width
                pen.line((x, self._title, x, self.size[1]), _PAPER, width=4)
        frame: Frame = np.asarray(canvas, np.uint8)
        return frame


def _font(size: int) -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which is part of matplotlib."""
    import matplotlib

    return ImageFont.truetype(str(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"), size)


def _fitting(text: str, size: int, room: float) -> ImageFont.FreeTypeFont:
    """The font in which a text fits into `room` pixels; its size is at most `size`."""
    while size > LEAST_FONT and _font(size).getlength(text) > room:
        size -= 1
    return _font(size)


# ---- the command -----------------------------------------------------------------------------------------------------


def record(
    policy: Any,
    episodes: int = 3,
    seed: int = 7,
    out: str | Path | None = None,
    compare: Sequence[Any] = (),
    deterministic: bool = False,
    which: Which = "last",
    width: int = 640,
    height: int = 480,
    fps: float = 20.0,
    speed: float = 2.0,
    camera: Camera = "auto",
    progress: FrameProgress | None = None,
    task: str | None = None,
    env_kwargs: Mapping[str, Any] | Iterable[str] = (),
    env_timeout: float | None = None,
) -> list[Path]:
    """Film a policy; returns the files written, an MP4 (if there is an encoder) and a GIF.

    Args:
        policy: a run's folder, or any other policy that `evaluate` takes.
        episodes: how many the video shows, one after the other.
        seed: seeds the layouts and the policy's noise.
        out: the name of the video; by default `video.mp4` in the run's folder, or beside an exported policy one of its
            name. The GIF is written beside it.
        compare: further policies on the same task, which are shown beside it in the same layouts.
        deterministic: act by the policy's mean.
        which: the last checkpoint, the best one, or that of a given epoch.
        width: width of one run's picture, in pixels.
        height: height of one run's picture, in pixels.
        fps: the most pictures a second.
        speed: how many times as fast as the simulated clock.
        camera: `auto`, `far`, `top` or `follow` (see `Renderer`).
        progress: called with the number of frames done and the number of all frames.
        task: where to film it; the run's, or what the file says, if left out. An environment of your own must render
            `rgb_array`.
        env_kwargs: keyword arguments of an environment of your own.
        env_timeout: seconds after which it counts as hung; as in training if left out.
    """
    policies = [policy, *compare]
    policies = [one for k, one in enumerate(policies) if str(one) not in map(str, policies[:k])]
    _check_arguments(policies, episodes, fps, speed)
    subjects = [subject(one, which, task, env_kwargs) for one in policies]
    task = _same_task(subjects)
    target = Path(out) if out is not None else subjects[0].home / f"{subjects[0].stem or 'video'}.mp4"
    if target.suffix.lower() not in (".mp4", ".gif"):
        raise ValueError(f"a video's name ends in .mp4 or .gif, got {str(target)!r}")
    check_writable(target)
    pool, renderer = _stage(task, episodes, seed, width, height, camera, env_timeout or subjects[0].config.env_timeout)
    with renderer:
        actors = [one.load(None) for one in subjects]
        takes = [play_takes(one, pool, renderer, seed, deterministic) for one in actors]
        timing = Timing.of(renderer.seconds_a_step, fps, speed)
        by_mean = {one.by_mean(deterministic) if isinstance(one, Actor) else deterministic for one in actors}
        alike = "mean action" if by_mean == {True} else "sampled actions"
        how = "actions of their choice" if None in by_mean or len(by_mean) > 1 else alike
        heading = f"{subjects[0].config.task_entry.label}, {how}, {speed:g} times real time"
        film = Film(renderer, takes, _captions(subjects, which), heading, timing)
        return _write_videos(film, target, progress)


def _stage(
    task: str, worlds: int, seed: int, width: int, height: int, camera: Camera, timeout: float
) -> tuple[Pool, Renderer | Pictures]:
    """Worlds, and what draws them."""
    if is_foreign(task):
        foreign = pool_with_pictures(task, worlds, seed, timeout)
        return cast("Pool", foreign), Pictures(foreign, width, height)
    pool = make_pool(task, worlds, seed)
    return pool, Renderer(pool, width, height, camera)


def _check_arguments(policies: Sequence[Any], episodes: int, fps: float, speed: float) -> None:
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    if len(policies) > MAX_PANELS:
        raise ValueError(f"at most {MAX_PANELS} runs fit side by side, got {len(policies)}")
    if fps <= 0 or speed <= 0:
        raise ValueError(f"fps and speed must be above 0, got {fps:g} and {speed:g}")


def _same_task(subjects: Sequence[Subject]) -> str:
    tasks = [one.config.task for one in subjects]
    specs = [task if is_foreign(task) else get_spec(task) for task in tasks]  # two files may define one task
    if any(spec != specs[0] for spec in specs):
        listed = ", ".join(f"{task} of {one.name} in {one.home}" for task, one in zip(tasks, subjects, strict=True))
        raise ValueError(f"only runs on the same task can be compared side by side, got {listed}")
    return tasks[0]


def _captions(subjects: Sequence[Subject], which: Which) -> list[str]:
    """Of each policy its name; also its folder's, if another one has the same name."""
    names = [one.name for one in subjects]
    texts = [one.name if names.count(one.name) == 1 else f"{one.name} ({one.home.name})" for one in subjects]
    epoch = "" if which == "last" else ", best" if which == "best" else f", epoch {which}"
    return [f"{text}{epoch}" for text in texts]


def _write_videos(film: Film, target: Path, progress: FrameProgress | None) -> list[Path]:
    """Draw all frames and write them to both files."""
    target.parent.mkdir(parents=True, exist_ok=True)
    gif, fps = target.with_suffix(".gif"), film.timing.fps
    writers: list[Mp4 | Gif] = [Gif(gif, film.size, fps)]
    program = ffmpeg()
    if program is not None:
        writers.insert(0, Mp4(program, target.with_suffix(".mp4"), film.size, fps))
    try:
        for done, frame in enumerate(film.frames(), start=1):
            for writer in writers:
                writer.add(frame)
            if progress is not None:
                progress(done, len(film))
    except BaseException:  # Ctrl-C too
        for writer in writers:
            writer.abandon()
        raise
    for writer in writers:
        writer.close()
    return [target.with_suffix(".mp4"), gif] if program is not None else [gif]
