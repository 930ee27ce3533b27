"""The methods by name: this package's, those that other packages announce, and those in a module or file of the user's.

A method is a class that derives from `sbtrpo.algorithms.Method`; it says itself what it is called, where it is from and
what its settings are. The class is imported when it is asked for.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import inspect
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from sbtrpo.config.run import RunSettings
from sbtrpo.config.settings import MethodSettings, declared
from sbtrpo.errors import UserError

GROUP = "sbtrpo.methods"
"""The entry points by which other packages announce methods."""
BUILT_IN = {
    "sb-trpo": "sb_trpo:SBTRPO",
    "sb-trpo_rcritic": "sb_trpo:SBTRPORewardCritic",
    "sb-trpo_critic": "sb_trpo:SBTRPOCritics",
    "sb-trpo_annealed": "sb_trpo:SBTRPOAnnealed",
    "sb-trpo_paced": "sb_trpo:SBTRPOPaced",
    "sb-trpo_growing": "sb_trpo:SBTRPOGrowing",
    "sb-trpo_hits": "sb_trpo:SBTRPOHits",
    "sb-trpo_late_hits": "sb_trpo:SBTRPOLateHits",
    "sb-trpo_polished": "sb_trpo:SBTRPOPolished",
    "ppo_lag": "ppo_lag:PPOLag",
    "trpo_lag": "trpo_lag:TRPOLag",
    "cpo": "cpo:CPO",
    "cup": "cup:CUP",
    "cppo_pid": "cppo_pid:CPPOPID",
    "focops": "focops:FOCOPS",
    "rcpo": "rcpo:RCPO",
    "pcpo": "pcpo:PCPO",
    "p3o": "p3o:P3O",
    "c_trpo": "c_trpo:CTRPO",
    "c3po": "c3po:C3PO",
    "crpo": "crpo:CRPO",
    "pcrpo": "pcrpo:PCRPO",
    "appo": "appo:APPO",
    "trpo": "trpo:TRPO",
    "ppo": "ppo:PPO",
}
"""Every method of this package, in the order of the paper's table, and where it is in `sbtrpo.algorithms`."""
RESERVED = (
    "num_seeds", "out", "quiet", "wandb", "config", "tasks", "algos", "seeds", "group", "method", "given", "help",
    "plan", "settings", "workers", "pack", "retries", "launcher", "address", "dry_run", "env_kwargs", "base",
)  # fmt: skip
"""Names that plans and commands use themselves."""


OF_WHOEVER_RUNS_IT = ("task", "algo", "seed")
"""Settings of a run for which a method has no default."""


class UnfitMethod(UserError, ValueError):  # noqa: N818
    """A method that cannot be used; the message says what to change."""


@dataclass(frozen=True)
class Entry:
    """A method as it is listed."""

    name: str
    """What `--algo` takes."""
    implementation: Any
    """The class."""
    version: str = ""
    """What tells a method in a file from what else that file has held."""

    @property
    def settings(self) -> type[MethodSettings]:
        """The class of its settings."""
        kind: type[MethodSettings] = self.implementation.Settings
        return kind

    @property
    def run_defaults(self) -> dict[str, Any]:
        """The defaults of all settings that every run has, where the method is this one."""
        run, own = declared(RunSettings), self.implementation.run_defaults
        return {name: run[name].checked(own[name]) if name in own else run[name].default for name in run}

    @property
    def label(self) -> str:
        """What tables and folders call it: its name, or that of the class for a method of the user's."""
        return self.implementation.__name__ if ":" in self.name else self.name

    @property
    def identity(self) -> str:
        """The same wherever a method's file lies, and another when its content changes."""
        return f"{self.label}@{self.version}" if self.version else self.name

    @property
    def title(self) -> str:
        """As a reader knows it."""
        return str(self.implementation.title or self.implementation.__name__)

    @property
    def summary(self) -> str:
        """What it does, in one line."""
        text = self.implementation.summary or inspect.getdoc(self.implementation) or ""
        return str(text).partition("\n")[0].rstrip(".")

    @property
    def source(self) -> str:
        """Where it was published, and the code whose behaviour fidelity "paper" has."""
        return str(self.implementation.source)

    @property
    def family(self) -> str:
        """Trust region, or first order."""
        return str(self.implementation.family)


def names() -> list[str]:
    """All methods that have a name: this package's, then those that others announce."""
    return [*BUILT_IN, *(name for name in _announced() if name not in BUILT_IN)]


def entries() -> list[Entry]:
    """All of them."""
    return [method(name) for name in names()]


def method(name: str) -> Entry:
    """The method of this name; hyphens and underscores are alike.

    >>> method("PPO-Lag").name, method("sb_trpo").name
    ('ppo_lag', 'sb-trpo')
    """
    if not isinstance(name, str):
        raise ValueError(f"algo must be a text, got {name!r}")
    if ":" in name:
        return _of_the_user(name)
    known = {_plain(key): key for key in names()}
    if key := known.get(_plain(name)):
        return _named(key)
    raise ValueError(f"there is no algorithm {name!r}; {nearest(_plain(name), known.values(), '`sbtrpo algorithms`')}")


def labelled(label: str) -> Entry | None:
    """The named method that tables call so; None for one of the user's."""
    return _named(label) if label in names() else None


def owners(setting: str) -> list[str]:
    """The named methods that have a setting."""
    return [entry.name for entry in entries() if setting in declared(entry.settings)]


def nearest(word: str, known: Iterable[str], where: str = "`sbtrpo train --help`") -> str:
    """A hint at what may be meant.

    >>> nearest("bata", ["beta", "seed"])
    'did you mean beta? `sbtrpo train --help` lists all of them'
    """
    near = difflib.get_close_matches(word.replace("-", "_"), list(known), n=3, cutoff=0.4)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return f"{hint}{where} lists all of them"


def _plain(name: str) -> str:
    return name.lower().replace("-", "_")


@functools.cache
def _announced() -> dict[str, importlib.metadata.EntryPoint]:
    """The methods of installed packages."""
    return {point.name: point for point in importlib.metadata.entry_points(group=GROUP)}


@functools.cache
def _named(name: str) -> Entry:
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        return Entry(name, getattr(importlib.import_module(f"sbtrpo.algorithms.{module}"), attribute))
    point = _announced()[name]
    try:
        implementation = point.load()
    except Exception as error:
        raise UnfitMethod(f"the method {name} ({point.value}) cannot be loaded: {_one_line(error)}") from error
    return Entry(name, _fit(name, implementation))


# ---- methods of the user's -----------------------------------------------------------------------------------------


def _of_the_user(name: str) -> Entry:
    """The class `module:Class` or `path/to/file.py:Class`."""
    place, _, attribute = name.rpartition(":")
    if not place or not attribute.isidentifier():
        raise UnfitMethod(f"{name!r} names no method; write module:Class or path/to/file.py:Class")
    module = load(place)
    if not hasattr(module, attribute):
        classes = [key for key, value in vars(module).items() if inspect.isclass(value) and _is_method(value)]
        near = difflib.get_close_matches(attribute, classes, n=1, cutoff=0.4) or classes[-1:]
        raise UnfitMethod(f"{place} has no class {attribute!r}" + (f"; did you mean {near[0]}?" if near else ""))
    version = hashlib.sha256(Path(place).read_bytes()).hexdigest()[:12] if place.endswith(".py") else ""
    return Entry(name, _fit(name, getattr(module, attribute)), version)


def load(place: str) -> ModuleType:
    """A module by its name, or the one in a file."""
    return _load_file(Path(place)) if place.endswith(".py") else _load_module(place)


def _load_module(place: str) -> ModuleType:
    if "" not in sys.path:
        sys.path.insert(0, "")  # it may lie in the working directory
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise UnfitMethod(
            f"{place} cannot be imported: {error}; it must be installed, or lie in the working directory"
        ) from error
    except Exception as error:
        raise UnfitMethod(f"`import {place}` raised {_one_line(error)}") from error


def _load_file(path: Path) -> ModuleType:
    """The module in a file, the same one for the same content at the same place."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UnfitMethod(f"the file {path} cannot be read: {error.strerror or error}") from error
    identity = hashlib.sha256(str(path.resolve()).encode() + content).hexdigest()[:16]
    name = f"sbtrpo_method_{path.stem}_{identity}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UnfitMethod(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        exec(compile(content, path, "exec", dont_inherit=True), module.__dict__)  # what was read, not a cache of it
    except BaseException as error:
        del sys.modules[name]
        if not isinstance(error, Exception):
            raise
        raise UnfitMethod(f"{path} raised {_one_line(error)}") from error
    return module


def _is_method(kind: Any) -> bool:
    base = importlib.import_module("sbtrpo.algorithms.base").Method
    return inspect.isclass(kind) and issubclass(kind, base)


def _fit(name: str, kind: Any) -> Any:
    """The class, if it can be used as a method."""
    if not _is_method(kind):
        raise UnfitMethod(
            f"{name} is no method: derive the class from sbtrpo.algorithms.TrustRegionMethod or FirstOrderMethod"
        )
    if missing := kind.missing():
        raise UnfitMethod(f"{name} does not say how it updates; define {missing}")
    settings = kind.Settings
    if not (inspect.isclass(settings) and issubclass(settings, MethodSettings)):
        raise UnfitMethod(f"{name}.Settings is no class of settings; derive it from the Settings of its base class")
    if "__dataclass_fields__" not in settings.__dict__ or not settings.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        raise UnfitMethod(f"{name}.Settings needs @dataclass(frozen=True) above it")
    try:
        declared(settings)
    except (NameError, TypeError) as error:
        raise UnfitMethod(
            f"the types of {name}.Settings cannot be read: {error}; import them outside of TYPE_CHECKING"
        ) from error
    if clash := [item for item in declared(settings) if item in declared(RunSettings) or item in RESERVED]:
        raise UnfitMethod(f"{name} has a setting {clash[0]}, which runs or commands have, too; give it another name")
    for item in declared(settings).values():
        try:
            item.checked(item.default) if item.default is not None else None
        except (ValueError, KeyError) as error:
            raise UnfitMethod(f"{name} has a default that its own setting does not allow: {error}") from error
    _check_run_defaults(name, kind.run_defaults)
    return kind


def _check_run_defaults(name: str, defaults: Any) -> None:
    """Refuse what a run cannot have by default."""
    known = declared(RunSettings)
    if not isinstance(defaults, Mapping):
        raise UnfitMethod(f"{name}.run_defaults must be a dict from settings of a run to values, got {defaults!r}")
    for item, value in defaults.items():
        if item in OF_WHOEVER_RUNS_IT:
            raise UnfitMethod(f"{name}.run_defaults names {item}, which is no method's to choose; remove it")
        if item not in known:
            raise UnfitMethod(f"{name}.run_defaults names {item!r}, no setting of a run; {nearest(str(item), known)}")
        try:
            known[item].checked(value)
        except ValueError as error:
            raise UnfitMethod(f"{name}.run_defaults has a value that no run can have: {error}") from error


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
