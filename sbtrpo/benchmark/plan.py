"""A plan: which runs a benchmark consists of.

As a file, a plan holds settings by name, a run's and its methods'. A list is an axis, and the runs are the product of
all axes. Each `[[group]]` is a product of its own, in which its settings stand in for those above:

    tasks = ["SafetyPointGoal2-v0", "SafetyCarGoal2-v0"]
    num_seeds = 5

    [[group]]
    algo = ["cpo", "ppo_lag"]

    [[group]]
    algo = "sb-trpo"
    beta = [0.6, 0.75, 0.9]

Keyword arguments of an environment are a table, whose lists are axes, too: `env_kwargs = { difficulty = [1, 2] }`.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from sbtrpo.algorithms import check_constraints
from sbtrpo.config import TrainConfig, catalogue
from sbtrpo.config.run import RunSettings
from sbtrpo.config.settings import Declared, is_listed
from sbtrpo.config.tasks import ENV_KWARGS, env_kwargs_axis, is_foreign, is_task_file, with_env_kwargs
from sbtrpo.config.toml import read_toml
from sbtrpo.config.train import all_settings, concerning
from sbtrpo.envs import get_spec
from sbtrpo.envs.constraints import make_constraints
from sbtrpo.envs.spec import cost_names
from sbtrpo.errors import sentence
from sbtrpo.files import write_atomically
from sbtrpo.runs.folder import default_path, method_file, read_run
from sbtrpo.runs.policy_file import SUFFIX, stored_policy

SEED_STRIDE = 1000
"""Between the seeds of `num_seeds`, as in the published launcher."""
MOST_RUNS = 10_000
"""Of a plan; one with more is a mistake."""
PLANS = Path(__file__).with_name("plans")
"""The plans that this package brings: the paper's, and others to try."""
_OTHERS = ("num_seeds", ENV_KWARGS)
"""What a plan has beside settings."""
_PLURALS = {"tasks": "task", "algos": "algo", "seeds": "seed"}

Axes = Mapping[str, tuple[Any, ...]]
"""Values by setting; a run takes one of each."""


@dataclass(frozen=True)
class Plan:
    """A benchmark's runs, as products of axes.

    >>> plan = Plan.from_settings({"tasks": ["ToyCorridor-v0"], "algo": ["cpo", "sb-trpo"], "beta": [0.6, 0.9]})
    >>> [(run.algo, run.get("beta")) for run in plan.runs()]
    [('cpo', None), ('sb-trpo', 0.6), ('sb-trpo', 0.9)]
    """

    name: str
    blocks: tuple[Axes, ...]

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """The plan in a TOML file, or one of this package's by its name, such as `main`."""
        path = plan_file(path)
        content = read_plan(path)
        try:
            return cls.from_settings(content, name=path.stem)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: {sentence(error)}") from error

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], name: str = "plan") -> Self:
        """The plan that a file with this content would be."""
        groups = settings.get("group", [])
        if not isinstance(groups, list) or not all(isinstance(group, Mapping) for group in groups):
            raise ValueError("group must be a list of tables: write [[group]] above the settings of each")
        if "group" in settings and not groups:
            raise ValueError("group holds no table; leave it out, or write [[group]] above settings")
        above = {key: value for key, value in settings.items() if key != "group"}
        known = known_settings(algorithms_in([{**_singular(above), **_singular(group)} for group in groups or [{}]]))
        common = _axes(above, known)
        blocks = [{**common, **_axes(group, known)} for group in groups] if groups else [common]
        for block in blocks:
            if block.keys() & {"seed", "num_seeds"} == {"seed", "num_seeds"} and len(block["seed"]) > 1:
                raise ValueError("give seeds or num_seeds, not both")
        plan = cls(name, tuple(blocks))
        plan.runs()
        return plan

    def replaced(self, settings: Mapping[str, Any]) -> Self:
        """The plan with these settings in place of those that it has, in all groups."""
        axes = _axes(
            settings, known_settings(algorithms_in([{**block, **_singular(settings)} for block in self.blocks]))
        )
        blocks = [dict(block) for block in self.blocks]
        for block in blocks:
            if "seed" in axes and "num_seeds" not in axes:
                block.pop("num_seeds", None)
            if "num_seeds" in axes and "seed" not in axes:
                block["seed"] = block.get("seed", (0,))[:1]
            block.update(axes)
        plan = dataclasses.replace(self, blocks=tuple(blocks))
        plan.runs()
        return plan

    def only_run(self, chosen: Mapping[str, Any]) -> TrainConfig:
        """The one run that is left, the seed aside, of those with these settings, first with this task and method.

        What none of them has, they all get. Of several seeds the run has the first.
        """
        runs, others = self.runs(), dict(chosen)
        if "task" in others:  # its keyword arguments are part of its name
            others["task"] = with_env_kwargs(others["task"], others.pop(ENV_KWARGS, ()))
        for name in ("task", "algo", "fidelity", ENV_KWARGS):
            if name in others:
                runs = _with(runs, {name: others.pop(name)})
        runs = _with(runs, others)
        if several := telling_apart(runs):
            raise ValueError(
                f"the plan {self.name} has runs that differ in {', '.join(several)}; name one of each, as in"
                f" --{several[0].replace('_', '-')}, or train all of them with sbtrpo benchmark"
            )
        return runs[0]

    def runs(self) -> list[TrainConfig]:
        """All runs, each once: a setting that does not concern an algorithm makes no further runs of it."""
        runs: dict[tuple[int, str], TrainConfig] = {}
        for block in self.blocks:
            for config in _product(block):
                runs.setdefault((config.seed, json.dumps(config.in_effect())), config)  # a file may have several paths
        for config in runs.values():
            if not is_foreign(config.task):  # what another package calls its environments only that package knows
                constraints = make_constraints(config.constraints, cost_names(get_spec(config.task)))
                check_constraints(config, len(constraints.names))
        return list(runs.values())


def plan_file(plan: str | Path) -> Path:
    """Where a plan is: the file of that path, or else this package's plan of that name."""
    path = Path(plan)
    own = PLANS / f"{path}.toml"
    return own if len(path.parts) == 1 and not path.is_file() and own.exists() else path


def read_plan(path: Path) -> dict[str, Any]:
    """What a plan's file holds, or a file with the settings of one run."""
    try:
        return read_toml(path)
    except FileNotFoundError:
        names = ", ".join(sorted(file.stem for file in PLANS.glob("*.toml")))
        raise FileNotFoundError(f"there is no plan {path}; give the path of a TOML file, or one of {names}") from None


def _with(runs: Sequence[TrainConfig], chosen: Mapping[str, Any]) -> list[TrainConfig]:
    """Those of the runs that have what is chosen, as far as any has it, or else all; they get the rest."""
    known = {name: value for name, value in chosen.items() if any(_has(run, name, value) for run in runs)}
    found = [run for run in runs if all(_has(run, name, value) for name, value in known.items())]
    changes = {name: value for name, value in chosen.items() if not found or name not in known}
    return [concerning({**run.given, **changes}) for run in found or runs]


def _has(run: TrainConfig, name: str, value: Any) -> bool:
    """Whether a setting of a run has this value."""
    if name == ENV_KWARGS:
        return is_foreign(run.task) and with_env_kwargs(run.task, value) == run.task
    if name == "task":
        return run.task_entry == TrainConfig(task=value).task_entry
    if name == "algo":
        return catalogue.method(run.algo).identity == catalogue.method(value).identity
    return name in run.settings() and run.get(name) == value


def telling_apart(runs: Sequence[TrainConfig]) -> list[str]:
    """The settings by which a plan makes runs differ, the seed aside."""
    effects = [config.in_effect() for config in runs]
    given = dict.fromkeys(name for config in runs for name in config.given)
    return [n for n in given if len({json.dumps(effect[n]) for effect in effects if n in effect}) > 1]


def is_plan(content: Mapping[str, Any]) -> bool:
    """Whether settings are those of a plan, and not those of one run."""
    return any(name in content for name in (*_PLURALS, "num_seeds", "group")) or any(
        isinstance(content.get(name), list) for name in _PLURALS.values()
    )


def run_path(root: str | Path, config: TrainConfig) -> Path:
    """A run's folder: its task, algorithm, seed and the hash of all other settings that shape its results.

    Earlier versions hashed otherwise; a folder of theirs that holds this run is this run's.
    """
    path = default_path(config, root)
    if not path.exists():
        # They also called a task in a file by the file's name.
        beside = Path(root).glob(f"*/{config.label}") if is_task_file(config.task) else [path.parent]
        for other in sorted(run for folder in beside for run in folder.glob(f"seed{config.seed}-*")):
            if _holds(other, config):
                return other
    return path


def _holds(folder: Path, config: TrainConfig) -> bool:
    try:
        return read_run(folder).in_effect() == config.in_effect()
    except (ValueError, OSError):
        return False


def with_kept_files(configs: Sequence[TrainConfig], root: Path) -> list[TrainConfig]:
    """The runs with copies of what they begin with: in `methods`, `tasks` and `policies` below the root.

    A user may edit or delete a file while runs train with it; and every node of a cluster sees the copies.
    """
    kept = [_with_kept_task(_with_kept_method(config, root / "methods"), root / "tasks") for config in configs]
    return [_with_kept_start(config, root / "policies") for config in kept]


def _with_kept_method(config: TrainConfig, folder: Path) -> TrainConfig:
    file = method_file(config)
    if file is None:
        return config
    entry = catalogue.method(config.algo)
    copy = _kept(file.read_bytes(), folder / f"{entry.label}-{entry.version}.py")
    return config.replace(algo=f"{copy}:{config.algo.rpartition(':')[2]}")


def _with_kept_task(config: TrainConfig, folder: Path) -> TrainConfig:
    if not is_task_file(config.task):
        return config
    entry = config.task_entry
    content = Path(config.task).read_bytes()
    return config.replace(task=str(_kept(content, folder / f"{entry.label}-{entry.version}.toml")))


def _with_kept_start(config: TrainConfig, folder: Path) -> TrainConfig:
    if config.init_from is None:
        return config
    start = stored_policy(config.init_from, config.init_which)
    return config.replace(init_from=str(_kept(start.content, folder / f"{start.identity}{SUFFIX}")), init_which=None)


def _kept(content: bytes, copy: Path) -> Path:
    """A copy of a file with this content, made unless it is there; its absolute path."""
    copy = copy.resolve()
    if not copy.exists() or copy.read_bytes() != content:
        copy.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(copy, content, alone=False)  # two commands may begin at once
    return copy


# ---- settings to axes --------------------------------------------------------------------------------------------


def algorithms_in(blocks: Sequence[Mapping[str, Any]]) -> list[str]:
    """The algorithms of a plan's blocks; the default for a block that names none."""
    named = [_singular(block).get("algo") or RunSettings.algo for block in blocks]
    return [name for names in named for name in (names if isinstance(names, list | tuple) else [names])]


def _singular(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {_PLURALS.get(name, name): value for name, value in settings.items()}


def known_settings(algorithms: Iterable[str]) -> dict[str, Declared]:
    """A run's settings, and those of any of these algorithms."""
    known: dict[str, Declared] = {}
    for name in algorithms:
        known |= all_settings(catalogue.method(name))
    return known


def _axes(settings: Mapping[str, Any], known: Mapping[str, Declared]) -> dict[str, tuple[Any, ...]]:
    """Settings with their values as tuples, checked one by one."""
    axes: dict[str, tuple[Any, ...]] = {}
    for given, value in settings.items():
        name = _PLURALS.get(given, given)
        if name not in known and name not in _OTHERS:
            raise ValueError(_unknown(given, known))
        if name in axes:
            raise ValueError(f"{given} is given twice, as {name} and as its plural")
        if name == "num_seeds":
            if type(value) is not int or value < 1:
                raise ValueError(f"num_seeds must be one number, at least 1, got {value}")
            axes[name] = (value,)
            continue
        values = env_kwargs_axis(value) if name == ENV_KWARGS else _values(known[name], value)
        if not values:
            raise ValueError(f"{given} is an empty list; name at least one value, or leave it out")
        axes[name] = tuple(values if name == ENV_KWARGS else map(known[name].checked, values))
    return axes


def _values(item: Declared, value: Any) -> list[Any]:
    """The values of an axis; a single one is an axis of length 1."""
    if not isinstance(value, list | tuple):
        return [value]
    nested = any(isinstance(entry, list | tuple) for entry in value)
    return [value] if is_listed(item.hint) and not nested and value else list(value)


def _unknown(name: str, known: Mapping[str, Declared]) -> str:
    if owners := catalogue.owners(name):
        return f"no algorithm of this plan has a setting {name}, as {', '.join(owners)} would; leave it out"
    return f"there is no setting {name!r}; {catalogue.nearest(name, [*known, *_PLURALS, *_OTHERS, 'group'])}"


def _product(block: Axes) -> Iterable[TrainConfig]:
    """One config for each combination of values, each with the settings that concern its algorithm."""
    axes = dict(block)
    count = axes.pop("num_seeds", (1,))[0]
    starts = axes.pop("seed", (0,))
    runs = math.prod(map(len, axes.values())) * len(starts) * count
    if runs > MOST_RUNS:
        raise ValueError(f"the plan has {runs:,} runs, and {MOST_RUNS:,} are the most; give fewer values or seeds")
    axes["seed"] = tuple(start + SEED_STRIDE * k for start in starts for k in range(count))
    for values in itertools.product(*axes.values()):
        yield concerning(dict(zip(axes, values, strict=True)))
