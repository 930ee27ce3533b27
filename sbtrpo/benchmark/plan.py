"""A plan: which runs a benchmark consists of.

As a file, a plan holds settings of `TrainConfig` by name. A list is an axis, and the runs are the product of all axes.
Each `[[group]]` is a product of its own, in which its settings stand in for those above:

    tasks = ["SafetyPointGoal2-v0", "SafetyCarGoal2-v0"]
    num_seeds = 5

    [[group]]
    algo = ["cpo", "ppo_lag"]

    [[group]]
    algo = "sb-trpo"
    beta = [0.6, 0.75, 0.9]
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import tomllib
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from sbtrpo.config import TrainConfig
from sbtrpo.config.catalogue import method
from sbtrpo.config.file import checked
from sbtrpo.envs import get_spec
from sbtrpo.envs.foreign.environment import is_foreign
from sbtrpo.runs.folder import default_path

SEED_STRIDE = 1000
"""Between the seeds of `num_seeds`, as in the published launcher."""
_HINTS = typing.get_type_hints(TrainConfig)
_DEFAULTS: dict[str, Any] = {field.name: field.default for field in dataclasses.fields(TrainConfig)}
_PLURALS = {"tasks": "task", "algos": "algo", "seeds": "seed"}
_CRITICS_ONLY = (
    "critic_learning_rate", "critic_batch", "critic_passes", "critic_l2", "gae_lambda", "bootstrap_raw_observation"
)  # fmt: skip
_LINE_SEARCH = ("line_search_fraction", "line_search_first")

Axes = Mapping[str, tuple[Any, ...]]
"""Values by setting; a run takes one of each."""


@dataclass(frozen=True)
class Plan:
    """A benchmark's runs, as products of axes.

    >>> plan = Plan.from_settings({"tasks": ["ToyCorridor-v0"], "algo": ["cpo", "sb-trpo"], "beta": [0.6, 0.9]})
    >>> [(run.algo, run.beta) for run in plan.runs()]
    [('cpo', None), ('sb-trpo', 0.6), ('sb-trpo', 0.9)]
    """

    name: str
    blocks: tuple[Axes, ...]

    @classmethod
    def from_file(cls, path: str | Path) -> Self:
        """The plan in a TOML file."""
        path = Path(path)
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise FileNotFoundError(f"there is no plan {path}; give the path of a TOML file") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not TOML: {error}") from error
        try:
            return cls.from_settings(content, name=path.stem)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any], name: str = "plan") -> Self:
        """The plan that a file with this content would be."""
        groups = settings.get("group", [])
        if not isinstance(groups, list) or not all(isinstance(group, Mapping) for group in groups):
            raise ValueError("group must be a list of tables: write [[group]] above the settings of each")
        if "group" in settings and not groups:
            raise ValueError("group holds no table; leave it out, or write [[group]] above settings")
        common = _axes({key: value for key, value in settings.items() if key != "group"})
        blocks = [{**common, **_axes(group)} for group in groups] if groups else [common]
        for block in blocks:
            if block.keys() & {"seed", "num_seeds"} == {"seed", "num_seeds"} and len(block["seed"]) > 1:
                raise ValueError("give seeds or num_seeds, not both")
        plan = cls(name, tuple(blocks))
        plan.runs()
        return plan

    def replaced(self, settings: Mapping[str, Any]) -> Self:
        """With these settings in place of its own, in all groups."""
        axes = _axes(settings)
        blocks = [dict(block) for block in self.blocks]
        for block in blocks:
            if "seed" in axes and "num_seeds" not in axes and len(axes["seed"]) > 1:
                block.pop("num_seeds", None)
            if "num_seeds" in axes and "seed" not in axes:
                block["seed"] = block.get("seed", (0,))[:1]
            block.update(axes)
        plan = dataclasses.replace(self, blocks=tuple(blocks))
        plan.runs()
        return plan

    def runs(self) -> list[TrainConfig]:
        """All runs, each once: what does not concern an algorithm makes no runs of its own."""
        found: dict[tuple[str, str, int, str], TrainConfig] = {}
        for block in self.blocks:
            for config in _product(block):
                found.setdefault((config.task, config.algo, config.seed, config.digest()), config)
        for task in dict.fromkeys(config.task for config in found.values()):
            if not is_foreign(task):  # what another package calls its environments only that package knows
                get_spec(task)
        return list(found.values())


def run_path(root: str | Path, config: TrainConfig) -> Path:
    """A run's folder: its task, algorithm, seed and the hash of all other settings that shape its results."""
    return default_path(config, root)


def relevant(config: TrainConfig) -> TrainConfig:
    """Without what does not concern the algorithm, so that runs which compute the same have one identity.

    >>> relevant(TrainConfig(algo="cpo", beta=0.6)).beta, relevant(TrainConfig(cost_limit=15.0)).cost_limit
    (None, 0.0)
    """
    algorithm = method(config.algo)
    own = algorithm.defaults(config.task, config.fidelity)
    foreign = {name for name, default in _DEFAULTS.items() if default is None and name not in own}
    if "multiplier_rate" in own:
        foreign.discard("multiplier_max")  # None is a value of it: no bound
    if "first_cost_zero" not in own:  # it does not read the cost of episodes
        foreign.add("cost_limit")
    if algorithm.family == "first order":
        foreign.update(_LINE_SEARCH)
    advantage = config.advantage or own["advantage"]
    if advantage in ("mc", "mc-linear"):
        foreign.update(_CRITICS_ONLY)
        if algorithm.family == "trust region":
            foreign.add("max_grad_norm")  # of the critics
    if advantage != "mc-linear":
        foreign.add("baseline_ridge")
    return dataclasses.replace(config, **{name: _DEFAULTS[name] for name in foreign})


# ---- settings to axes --------------------------------------------------------------------------------------------


def _axes(settings: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Settings with their values as tuples, checked one by one."""
    axes: dict[str, tuple[Any, ...]] = {}
    for given, value in settings.items():
        name = _PLURALS.get(given, given)
        if name != "num_seeds" and name not in _HINTS:
            raise ValueError(_unknown(given))
        if name in axes:
            raise ValueError(f"{given} is given twice, as {name} and as its plural")
        values = _values(name, value)
        if not values:
            raise ValueError(f"{given} is an empty list; name at least one value, or leave it out")
        axes[name] = tuple(checked(given, item, int if name == "num_seeds" else _HINTS[name]) for item in values)
    if "num_seeds" in axes and (len(axes["num_seeds"]) > 1 or axes["num_seeds"][0] < 1):
        raise ValueError(f"num_seeds must be one number, at least 1, got {settings['num_seeds']}")
    return axes


def _values(name: str, value: Any) -> list[Any]:
    """The values of an axis; a single one is an axis of length 1."""
    if name == "hidden":  # itself a list
        nested = isinstance(value, list | tuple) and any(isinstance(item, list | tuple) for item in value)
        return list(value) if nested else [value]
    return list(value) if isinstance(value, list | tuple) else [value]


def _unknown(name: str) -> str:
    known = [*_HINTS, *_PLURALS, "num_seeds", "group"]
    near = difflib.get_close_matches(name.replace("-", "_"), known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "`sbtrpo train --help` lists all settings"
    return f"there is no setting {name!r}; {hint}"


def _product(block: Axes) -> Iterable[TrainConfig]:
    """One config for each combination of values."""
    axes = dict(block)
    count = axes.pop("num_seeds", (1,))[0]
    starts = axes.pop("seed", (0,))
    axes["seed"] = tuple(start + SEED_STRIDE * k for start in starts for k in range(count))
    for values in itertools.product(*axes.values()):
        yield relevant(TrainConfig(**dict(zip(axes, values, strict=True))))
