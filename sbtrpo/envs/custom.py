"""Tasks of your own: a navigation task from a TOML file or a dict, without code.

`docs/tasks.md` lists the settings. An error names the setting that is wrong, in one sentence.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import re
import tomllib
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, cast

from sbtrpo.config.toml import read_toml
from sbtrpo.envs import spec as s
from sbtrpo.envs.robots import ROBOTS
from sbtrpo.envs.spec import Group, NavigationSpec, Objective, Rectangle
from sbtrpo.errors import sentence

OBJECTIVES: tuple[Objective, ...] = typing.get_args(Objective)
MAX_COUNT = 1000
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_TOGETHER = 1e-6  # metres; fixed places are drawn within 1e-9 of where they are written


@dataclass(frozen=True)
class Kind:
    """Defaults for the settings of a kind of objects."""

    size: float
    """Radius, half side of a box, or half length of a wall."""
    keepout: float
    cost: bool = False
    density: float = 0.0
    settings: tuple[str, ...] = ("count", "size", "keepout", "cost", "lidar", "places", "area")

    @property
    def single(self) -> bool:
        """Whether there is exactly one object of the kind."""
        return "count" not in self.settings and "boundary" not in self.settings


_ONE = ("size", "keepout", "lidar", "places", "area")
_MANY = ("count", *_ONE, "cost")
KINDS = {
    "goal": Kind(0.3, 0.305, settings=_ONE),
    "hazards": Kind(0.2, 0.18, cost=True, settings=_MANY),
    "vases": Kind(0.1, 0.15, cost=True, density=0.001, settings=(*_MANY, "density")),
    "pillars": Kind(0.2, 0.3, cost=True, settings=_MANY),
    "buttons": Kind(0.1, 0.2, cost=True, settings=_MANY),
    "gremlins": Kind(0.1, 0.4, cost=True, density=0.001, settings=(*_MANY, "density")),
    "push_box": Kind(0.2, 0.2, density=0.001, settings=(*_ONE, "cost", "density")),
    "circle": Kind(1.5, 0.0, settings=("size", "lidar")),
    "sigwalls": Kind(3.5, 0.0, cost=True, settings=("boundary", "size", "cost")),
}
"""The kinds of objects, as they are in the family."""
_OF_KINDS = {name for kind in KINDS.values() for name in kind.settings}

NEEDS: dict[Objective, tuple[str, ...]] = {
    "goal": ("goal",),
    "button": ("buttons", "goal"),
    "push": ("goal", "push_box"),
    "circle": ("circle",),
    "run": (),
}
"""The kinds that an objective needs. A goal or a circle is refused where it is not needed."""


@dataclass(frozen=True)
class Defaults:
    """Defaults for the settings of a task with an objective: the numbers of the family."""

    extent: float = 2.0
    robot_keepout: float = 0.4
    lidar_range: float = 3.0
    episode_length: int = 1000
    start: Rectangle | None = None


DEFAULTS: dict[Objective, Defaults] = {
    "goal": Defaults(),
    "button": Defaults(),
    "push": Defaults(),
    "circle": Defaults(extent=0.8, robot_keepout=0.0, lidar_range=6.0, episode_length=500),
    "run": Defaults(extent=17.5, robot_keepout=0.0, episode_length=500, start=(-0.2, 16.5, 0.2, 16.5)),
}
SETTINGS = ("id", "robot", "objective", *(f.name for f in dataclasses.fields(Defaults)), "substeps",
            "observe_violation", "objects")  # fmt: skip


def spec_from_toml(path: str | PathLike[str]) -> NavigationSpec:
    """The task that a TOML file describes."""
    try:
        settings = read_toml(Path(path))
    except FileNotFoundError as error:
        raise ValueError(f"there is no task file {str(path)!r}; give the path of an existing one") from error
    try:
        return spec_from_dict(settings)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: {sentence(error)}") from error


def spec_from_dict(settings: Mapping[str, Any]) -> NavigationSpec:
    """The task that settings describe.

    >>> pillars = {"kind": "pillars", "count": 3, "cost": True}
    >>> spec = spec_from_dict(
    ...     {"id": "Slalom-v0", "robot": "car", "objective": "goal", "objects": [{"kind": "goal"}, pillars]}
    ... )
    >>> spec.num_objects, spec.extent
    (4, 2.0)
    """
    table = _Table(settings, "", SETTINGS)
    objective = cast(Objective, table.choice("objective", OBJECTIVES))
    default = DEFAULTS[objective]
    robot = table.choice("robot", tuple(ROBOTS))
    spec = NavigationSpec(
        id=table.name("id"),
        robot=robot,
        objective=objective,
        groups=_groups(table.tables("objects"), robot, objective),
        extent=table.number("extent", default.extent, above=0),
        robot_keepout=table.number("robot_keepout", default.robot_keepout, least=0),
        lidar_range=table.number("lidar_range", default.lidar_range, above=0),
        episode_length=table.whole("episode_length", default.episode_length),
        substeps=table.whole("substeps", NavigationSpec.substeps),
        start=table.rectangle("start", default.start),
        observe_violation=table.flag("observe_violation", NavigationSpec.observe_violation),
    )
    _check_room(spec)
    _check_fixed_goal(spec)
    return spec


def _groups(entries: Sequence[Any], robot: str, objective: Objective) -> tuple[Group, ...]:
    groups: list[Group] = []
    for i, entry in enumerate(entries):
        if not isinstance(entry, Mapping):
            raise ValueError(f"objects[{i}] must be a table of settings, got {entry!r}")
        group = _group(entry, f"objects[{i}].", robot, objective)
        if any(other.kind == group.kind for other in groups):
            raise ValueError(f"objects[{i}].kind repeats {group.kind!r}; give each kind one entry")
        if group.kind in ("goal", "circle") and group.kind not in NEEDS[objective]:
            raise ValueError(f"objects[{i}].kind {group.kind!r} has no part in objective {objective!r}; leave it out")
        groups.append(group)
    for kind in NEEDS[objective]:
        if all(group.kind != kind for group in groups):
            raise ValueError(f"objects must have an entry of kind {kind!r} for objective {objective!r}")
    return tuple(groups)


def _group(entry: Mapping[str, Any], path: str, robot: str, objective: Objective) -> Group:
    """One entry of `objects`."""
    name = _Table(entry, path, entry).choice("kind", tuple(KINDS))
    kind = _kind_in_family(name, robot, objective)
    table = _Table(entry, path, ("kind", *kind.settings), of=name)
    size = table.number("size", kind.size, above=0)
    # Bigger things keep more distance, unless the settings say how much.
    keepout = table.number("keepout", kind.keepout * (size / kind.size), least=0)
    density = table.number("density", kind.density, above=0)
    cost = table.flag("cost", kind.cost)
    if name == "circle":
        group = s.circle(size)
    elif name == "sigwalls":
        x, *y = table.boundary("boundary")
        group = s.sigwalls(x, y[0] if y else None, half_length=size, cost=cost)
    else:
        places = table.points("places")
        count = 1 if kind.single else table.whole("count", 1 if places is None else len(places), most=MAX_COUNT)
        if places is not None and len(places) != count:
            raise ValueError(f"{path}places must be as many as there are objects, {count}, got {len(places)}")
        group = _make_group(name, count, size, keepout, cost, density)
        group = dataclasses.replace(group, places=places, area=table.rectangle("area", None))
        if places is not None and group.area is not None:
            raise ValueError(f"{path}area is for random places, and {path}places gives fixed ones; leave one out")
    return dataclasses.replace(group, lidar=table.flag("lidar", group.lidar))


def _kind_in_family(name: str, robot: str, objective: Objective) -> Kind:
    """A kind as it is in the family's tasks with this robot and objective."""
    kind = KINDS[name]
    if name == "goal" and objective == "button":
        return dataclasses.replace(kind, size=0.2, keepout=0.4)
    if name == "goal" and objective == "push":
        return dataclasses.replace(kind, keepout=0.4)
    if name == "push_box" and robot == "car":
        return dataclasses.replace(kind, size=0.125, keepout=0.125, density=0.0005)
    if name == "sigwalls" and objective == "run":
        return dataclasses.replace(kind, size=17.5)
    return kind


def _make_group(kind: str, count: int, size: float, keepout: float, cost: bool, density: float) -> Group:
    match kind:
        case "goal":
            return s.goal(size, keepout)
        case "hazards":
            return s.hazards(count, size, keepout, cost)
        case "vases":
            return s.vases(count, cost, size, keepout, density)
        case "pillars":
            return s.pillars(count, cost, size, keepout)
        case "buttons":
            return s.buttons(count, cost, size, keepout)
        case "gremlins":
            return s.gremlins(count, cost, size, keepout, density)
        case _:
            return s.push_box(size, density, keepout, cost)


def _check_room(spec: NavigationSpec) -> None:
    """Keepouts leave room in the square, and fixed places keep their distance from each other."""
    if spec.start is None and spec.robot_keepout >= spec.extent:
        raise ValueError(f"robot_keepout must be below extent ({spec.extent}), got {spec.robot_keepout}")
    fixed: list[tuple[str, tuple[float, float], float]] = []
    if spec.start is not None and spec.start[:2] == spec.start[2:]:
        fixed.append(("start", spec.start[:2], spec.robot_keepout))
    for i, group in enumerate(spec.groups):
        if group.places is None and group.area is None and group.keepout >= spec.extent:
            raise ValueError(f"objects[{i}].keepout must be below extent ({spec.extent}), got {group.keepout}")
        fixed += [(f"objects[{i}].places[{k}]", xy, group.keepout) for k, xy in enumerate(group.places or ())]
    for k, (name, place, keepout) in enumerate(fixed):
        for other_name, other, other_keepout in fixed[:k]:
            gap, least = math.dist(place, other), keepout + other_keepout
            if gap < least - _TOGETHER:
                raise ValueError(
                    f"{other_name} and {name} are {gap:g} m apart, and their keepouts add up to {least:g} m;"
                    " move one or set a smaller keepout"
                )


def _check_fixed_goal(spec: NavigationSpec) -> None:
    """A goal with a fixed place must end the episode when it is reached: what stands on it must leave it no room."""
    if spec.objective not in ("goal", "push") or (goal := spec.group("goal")).places is None:
        return
    visitor = spec.group("push_box").keepout if spec.objective == "push" else spec.robot_keepout
    if visitor + goal.keepout <= goal.radius:
        i = spec.groups.index(goal)
        raise ValueError(
            f"objects[{i}].keepout must be above {goal.radius - visitor:g} for a goal with a fixed place, got"
            f" {goal.keepout:g}; a smaller one would pay for the same goal again and again"
        )


class _Table:
    """Settings by name, each checked as it is read."""

    def __init__(self, values: Mapping[str, Any], path: str, known: Sequence[str] | Mapping[str, Any], of: str = ""):
        self.values, self.path = values, path
        for name in values:
            if name not in known:
                # A setting of other kinds is no misspelling.
                near = [] if name in _OF_KINDS else difflib.get_close_matches(str(name), known, n=1, cutoff=0.6)
                hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(known)}"
                raise ValueError(f"{path}{name} is not a setting{f' of {of}' if of else ''}; {hint}")

    def _fail(self, name: str, must: str) -> typing.NoReturn:
        raise ValueError(f"{self.path}{name} must be {must}, got {self.values[name]!r}")

    def name(self, name: str) -> str:
        """An id that can name a folder."""
        if name not in self.values:
            raise ValueError(f"{self.path}{name} is missing; name the task, as in {name} = 'MyTask-v0'")
        value = self.values[name]
        if not isinstance(value, str) or not _ID.fullmatch(value) or value.endswith(".toml"):
            self._fail(name, "a name of letters, digits, hyphens, underscores and points that does not end in .toml")
        return value

    def choice(self, name: str, options: tuple[str, ...]) -> str:
        """One of several words."""
        if name not in self.values:
            raise ValueError(f"{self.path}{name} is missing; choose one of {', '.join(options)}")
        value = self.values[name]
        if value not in options:
            near = difflib.get_close_matches(str(value), options, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"{self.path}{name} must be one of {', '.join(options)}, got {value!r}{hint}")
        return str(value)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.values.get(name, default)
        if not isinstance(value, bool):
            self._fail(name, "true or false")
        return value

    def number(self, name: str, default: float, least: float | None = None, above: float | None = None) -> float:
        """A number, within ±1e9."""
        value = self.values.get(name, default)
        if not _is_number(value):
            self._fail(name, "a number of ordinary size")
        if name in self.values and least is not None and value < least:
            self._fail(name, f"at least {least:g}")
        if name in self.values and above is not None and value <= above:
            self._fail(name, f"above {above:g}")
        return float(value)

    def whole(self, name: str, default: int, most: int | None = None) -> int:
        """A whole number from 1 on."""
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self._fail(name, "a whole number")
        if value < 1:
            self._fail(name, "at least 1")
        if most is not None and value > most:
            self._fail(name, f"at most {most}")
        return value

    def _numbers(self, name: str, value: Any, lengths: tuple[int, ...], must: str) -> tuple[float, ...]:
        if not isinstance(value, list | tuple) or len(value) not in lengths or not all(map(_is_number, value)):
            raise ValueError(f"{self.path}{name} must be {must}, got {value!r}")
        return tuple(map(float, value))

    def rectangle(self, name: str, default: Rectangle | None) -> Rectangle | None:
        """A rectangle by two corners."""
        if name not in self.values:
            return default
        must = "[x_min, y_min, x_max, y_max] with neither maximum below its minimum"
        corners = self._numbers(name, self.values[name], (4,), must)
        if corners[0] > corners[2] or corners[1] > corners[3]:
            self._fail(name, must)
        return cast(Rectangle, corners)

    def points(self, name: str) -> tuple[tuple[float, float], ...] | None:
        """Places, at least one."""
        if name not in self.values:
            return None
        value = self.values[name]
        if not isinstance(value, list | tuple) or not value:
            self._fail(name, "a list of places [x, y]")
        points = [self._numbers(f"{name}[{k}]", point, (2,), "[x, y]") for k, point in enumerate(value)]
        return tuple((x, y) for x, y in points)

    def boundary(self, name: str) -> tuple[float, ...]:
        """One or two distances from the origin."""
        must = "[x] or [x, y], each above 0"
        if name not in self.values:
            raise ValueError(f"{self.path}{name} is missing; it must be {must}")
        limits = self._numbers(name, self.values[name], (1, 2), must)
        if min(limits) <= 0:
            self._fail(name, must)
        return limits

    def tables(self, name: str) -> Sequence[Any]:
        """A list of tables, none if left out."""
        value = self.values.get(name, ())
        if not isinstance(value, list | tuple):
            self._fail(name, "a list of tables, each written below [[objects]]")
        return value


def _is_number(value: Any) -> bool:
    # A whole number of TOML may be too large for a float.
    return isinstance(value, int | float) and not isinstance(value, bool) and -1e9 <= value <= 1e9


def spec_to_toml(spec: NavigationSpec) -> str:
    """The file that describes a task, every setting written out; `spec_from_toml` reads the same task from it."""
    lines = [f"# {spec.id}: a task for sbtrpo.", ""]
    lines += _assignments({name: getattr(spec, name) for name in SETTINGS if name != "objects"})
    for group in spec.groups:
        names = KINDS[group.kind].settings if group.kind in KINDS else ()
        values = {name: _sizing(group) if name == "size" else getattr(group, name) for name in names}
        lines += ["", "[[objects]]", *_assignments({"kind": group.kind, **values})]
    text = "\n".join(lines) + "\n"
    if _reread(text) != spec:
        raise ValueError(f"{spec.id} has what no settings describe, such as a kind of its own; register it in code")
    return text


def _assignments(values: Mapping[str, Any]) -> list[str]:
    """A line for each setting; TOML has no null, so what is None is left out."""
    return [f"{name} = {_toml(value)}" for name, value in values.items() if value is not None]


def _sizing(group: Group) -> float:
    """The number that the setting `size` of a kind stands for."""
    return group.size[1] if group.kind == "sigwalls" else group.size[0]


def _reread(text: str) -> NavigationSpec | None:
    try:
        return spec_from_dict(tomllib.loads(text))
    except ValueError:
        return None


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
