"""How a setting is declared: its default, its bounds, what corrected code has, and when it has an effect.

A class of settings is a frozen dataclass. `setting` declares a field with rules; the sentence below a field says what
it means, to `--help` and to the documentation alike. A subclass that gives a field another default, `target_kl: float
= 0.01`, inherits its rules and its meaning.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import inspect
import numbers
import textwrap
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

Advantage = Literal["mc", "mc-linear", "gae-reward", "gae", "off-policy-cost", "off-policy"]
Fidelity = Literal["paper", "corrected"]
Needs = Literal["critics", "baseline", "off-policy", "patience", "growth", "first-hit", "beta-end"]
_SAME: Any = object()


@dataclass(frozen=True)
class Rule:
    """What holds for a setting beside its type."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    ceiling: float | None = None
    """What no machine goes beyond; it is mentioned only to whoever does."""
    span: str = ""
    """The bounds in words, where "at least 1" would not do."""
    advice: str = ""
    """What to do instead, behind the sentence that refuses a value."""
    corrected: Any = _SAME
    """The value under fidelity "corrected", of a quirk."""
    quirk: str = ""
    """What the published code does, and what the correction is."""
    needs: Needs | None = None
    """Without this the setting has no effect."""
    paper: Any = None
    """What the paper's table prints, where that is something else."""
    operational: bool = False
    """Whether it leaves what a run computes as it is."""

    def allows(self, value: Any) -> bool:
        """Whether a value lies within the bounds; each of them, if there are several."""
        if isinstance(value, tuple):
            return all(map(self.allows, value))
        if not isinstance(value, int | float) or isinstance(value, bool):
            return True
        return (
            (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def bounds(self) -> str:
        """The bounds in words."""
        if self.span:
            return self.span
        if self.least is not None and self.most is not None:
            return f"between {self.least:g} and {self.most:g}"
        bounds = {"at least": self.least, "above": self.above, "at most": self.most, "below": self.below}
        return " and ".join(f"{words} {bound:g}" for words, bound in bounds.items() if bound is not None)


def setting(default: Any, **rules: Any) -> Any:
    """A field of a class of settings, with the rules of `Rule`."""
    return dataclasses.field(default=default, metadata={"rule": Rule(**rules)})


@dataclass(frozen=True)
class Declared:
    """One setting of a class of settings."""

    name: str
    hint: Any
    default: Any
    rule: Rule
    meaning: str

    @property
    def is_quirk(self) -> bool:
        """Whether the published value is one that a textbook would not have."""
        return self.rule.corrected is not _SAME

    def checked(self, value: Any) -> Any:
        """The value as the setting has it: 1.0 for 1, a tuple for a list.

        Raises:
            ValueError: one that the setting cannot have.
        """
        value = _of_type(self.name, value, self.hint)
        ceiling = self.rule.ceiling
        if ceiling is not None and any(item > ceiling for item in (value if isinstance(value, tuple) else (value,))):
            raise ValueError(f"{self.name} must be at most {ceiling:,}, got {value}")
        if not self.rule.allows(value):
            advice = f"; {self.rule.advice}" if self.rule.advice else ""
            raise ValueError(f"{self.name} must be {self.rule.bounds()}, got {value}{advice}")
        return value


def declared(kind: Any) -> dict[str, Declared]:
    """The settings that a class declares or inherits, in their order."""
    return _declared(kind)


@functools.cache
def _declared(kind: Any) -> dict[str, Declared]:
    hints = typing.get_type_hints(kind)
    meanings: dict[str, str] = {}
    rules: dict[str, Rule] = {}
    for base in reversed(kind.__mro__):
        meanings |= _sentences(base)
        fields = base.__dict__.get("__dataclass_fields__", {})
        rules |= {name: field.metadata["rule"] for name, field in fields.items() if "rule" in field.metadata}
    return {
        field.name: Declared(
            field.name, hints[field.name], field.default, rules.get(field.name, Rule()), meanings.get(field.name, "")
        )
        for field in dataclasses.fields(kind)
    }


def _sentences(kind: type) -> dict[str, str]:
    """The sentences below the fields of a class; none where its source is not at hand."""
    if "__dataclass_fields__" not in kind.__dict__:
        return {}
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except (OSError, TypeError, SyntaxError):
        return {}
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: " ".join(str(below.value.value).split())
        for field, below in zip(body.body, body.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
    }


@dataclass(frozen=True)
class MethodSettings:
    """What every method has. A method's own class of settings derives from it and is a frozen dataclass, too."""

    per_task: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Defaults that are others on some tasks."""

    advantage: Advantage = "gae"
    """mc: Monte Carlo returns, no critic (the paper's main results); gae-reward: a reward critic; gae: critics of
    reward and cost; mc-linear: Monte Carlo returns minus a linear baseline fitted on the previous epoch;
    off-policy-cost: critics of state and action that learn from earlier epochs, too, for costs, and Monte Carlo returns
    of reward; off-policy: such critics for both."""
    gae_lambda: float = setting(0.95, least=0, most=1, needs="critics")
    """Of generalised advantage estimates, for reward and for cost."""
    baseline_ridge: float = setting(1e-3, least=0, needs="baseline")
    """Of the linear baseline, relative to the mean square of its features."""
    replay_steps: int = setting(1_000_000, least=0, ceiling=10**9, needs="off-policy")
    """Steps of earlier epochs, of eight at the most, that critics of state and action learn from beside an epoch's own;
    an eighth of them is what an epoch leaves, whole worlds of it. A checkpoint holds them."""
    replay_updates: int = setting(2_000, least=1, ceiling=10**7, needs="off-policy")
    """Minibatches of these critics in an epoch: a GPU's work, on two cores each takes some 0.15 s."""
    pessimism: float = setting(0.0, least=0, ceiling=1_000, needs="off-policy")
    """So many deviations between these critics, of which there are five for each signal, are added to their mean for
    costs, and taken from it for reward."""
    critic_learning_rate: float = setting(1e-3, above=0, needs="critics")
    """Of the critics; constant."""
    critic_l2: float = setting(1e-3, least=0, needs="critics")
    """Weight of the sum of squared parameters in a critic's loss."""
    bootstrap_raw_observation: bool = setting(
        True,
        needs="critics",
        corrected=False,
        quirk="At a time-out the published critics judge the raw last observation; corrected, the normalised one.",
    )
    """Whether critics judge time-outs on the raw last observation; paper: yes."""

    def first_hits(self, progress: float) -> bool:
        """Whether costs are estimated by their next violation alone, with that share of the run over."""
        return False

    def heads(self, constraints: int = 1) -> int:
        """How many critics the advantages need, with so many constraints."""
        return {"gae": 1 + constraints, "gae-reward": 1}.get(self.advantage, 0)

    def in_effect(self, needs: Needs | None) -> bool:
        """Whether settings with this need have an effect."""
        if needs is None:
            return True
        if needs == "first-hit":
            return self.first_hits(1.0)
        if needs == "off-policy":
            return self.advantage in ("off-policy-cost", "off-policy")
        return self.heads() > 0 if needs == "critics" else self.advantage == "mc-linear"

    def scheduled(self, progress: float) -> dict[str, Any]:
        """Settings that change over a run, by what they are when this share of it is over, in [0, 1]."""
        return {}

    def check(self, gamma: float) -> None:
        """Refuse, by a ValueError, settings that do not go together."""

    @classmethod
    def defaults(cls, task: str, fidelity: Fidelity) -> dict[str, Any]:
        """The values of all settings on a task."""
        corrected = fidelity == "corrected"
        values = {n: s.rule.corrected if corrected and s.is_quirk else s.default for n, s in declared(cls).items()}
        return {**values, **cls.per_task.get(task, {})}


def for_each(name: str, value: float | tuple[float, ...], constraints: int) -> tuple[float, ...]:
    """A setting that has one value, or one for each constraint, as one for each.

    >>> for_each("beta", 0.75, 2)
    (0.75, 0.75)
    """
    values = value if isinstance(value, tuple) else (value,) * constraints
    if len(values) != constraints:
        raise ValueError(
            f"{name} has {len(values)} values, and there {'is' if constraints == 1 else 'are'} {constraints}"
            f" constraint{'s' * (constraints > 1)}; give one value, or one for each"
        )
    return values


# ---- values --------------------------------------------------------------------------------------------------------

_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def _of_type(name: str, value: Any, hint: Any) -> Any:
    """A value as a setting of this type has it, or a ValueError."""
    options = [option for option in members(hint) if option is not type(None)]
    literals = [
        choice for option in options if typing.get_origin(option) is Literal for choice in typing.get_args(option)
    ]
    if literals and value in literals:
        return value
    if type(value) in options and value == value:
        return value
    if int in options and isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)  # NumPy's, for instance
    if float in options and isinstance(value, numbers.Real) and not isinstance(value, bool) and value == value:
        return float(value)
    items = [typing.get_args(option)[0] for option in options if typing.get_origin(option) is tuple]
    if items == [str] and isinstance(value, str):
        return (value,)
    if items and isinstance(value, list | tuple):
        try:
            return tuple(_of_type(name, item, items[0]) for item in value)
        except ValueError:
            pass
    if literals:
        choices = [str(choice) for choice in literals]
        near = difflib.get_close_matches(str(value), choices, n=1)
        advice = f"; did you mean {near[0]}?" if near else ""
        number = f" or {_WORDS[int]}" if int in options else ""
        raise ValueError(f"{name} must be one of {', '.join(choices)}{number}, got {value!r}{advice}")
    many = f"a list of {_WORDS[items[0]].removeprefix('a ')}s" if items else ""
    plain = _WORDS.get(options[0], "")
    raise ValueError(f"{name} must be {' or '.join(filter(None, (plain, many)))}, got {value!r}")


def members(hint: Any) -> tuple[Any, ...]:
    """The members of a union; the hint alone if it is none."""
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def is_listed(hint: Any) -> bool:
    """Whether a single value of a setting is itself a list, and nothing else.

    >>> is_listed(tuple[int, ...]), is_listed(float | tuple[float, ...])
    (True, False)
    """
    return all(typing.get_origin(option) is tuple for option in members(hint))
