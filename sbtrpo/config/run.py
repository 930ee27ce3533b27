"""The settings of a run, whatever its method."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeAlias

from sbtrpo.config.settings import Fidelity, setting

Faulted: TypeAlias = Literal["unsafe", "apart"]
"""What episodes count as that a fault has cut."""

Engine: TypeAlias = Literal["auto", "cpu", "gpu", "gpu-on-cpu"]
"""What simulates the worlds."""

Which: TypeAlias = Literal["last", "best"] | int
"""A run's checkpoint, by its epoch or by what it is."""

Activation: TypeAlias = Literal["tanh", "relu", "elu"]
Network: TypeAlias = Literal["mlp", "cnn"]
Initialisation: TypeAlias = Literal["uniform", "orthogonal"]
Statistics: TypeAlias = Literal["running", "steady"]
GrowBy: TypeAlias = Literal["steps", "worlds"]

SMALL_EPOCH = 65_536
"""Up to so many steps an epoch's update has one thread, unless another number is asked for."""

MOST_STEPS = 10**12
"""Of a run."""

MOST_WORLDS = 100_000
"""Of an epoch."""

TIMEOUT = 300.0
"""Seconds after which an environment that does not answer counts as hanging."""


@dataclass(frozen=True)
class RunSettings:
    """What a run is, whatever its method."""

    task: str = "SafetyPointGoal2-v0"
    """Task id; `sbtrpo tasks` lists them."""
    algo: str = "sb-trpo"
    """`sbtrpo algorithms` lists them; hyphens and underscores are alike. A method of your own is `module:Class` or
    `file.py:Class`."""
    seed: int = setting(0, least=0, ceiling=2**62, operational=True)  # it is part of the folder's name
    num_envs: int = setting(20, least=1, ceiling=MOST_WORLDS)
    """Worlds stepped together."""
    steps_per_epoch: int = setting(20_000, least=1, ceiling=100_000_000)
    """Environment steps between updates, over all worlds."""
    epoch_growth: float = setting(0.0, least=0, most=1)
    """The share of the steps before it that an epoch has, in whole multiples of steps_per_epoch; 0: all are alike."""
    grow_by: GrowBy = setting("steps", needs="growth")
    """What longer epochs have more of. steps: every world plays for longer; worlds: those that are there go on, and
    others begin beside them. That is faster on a GPU, whose steps have a latency."""
    total_steps: int = setting(20_000_000, least=1, ceiling=MOST_STEPS)
    constraints: tuple[str, ...] = ("sum",)
    """sum: the task's cost is one constraint; each: every cost component is one of its own; or components by name,
    those of one constraint joined by a plus: hazards vases_contact+vases_velocity."""
    faulted: Faulted = "unsafe"
    """Of episodes that a fault has cut, of the simulator or of your environment. unsafe: the faulted step costs 1 in
    every constraint, to the learner as in all that is reported; apart: it costs nothing, and such episodes are counted
    but left out of all rates and means."""
    end_at_violation: bool = False
    """Whether training episodes end with the first step that costs anything: what would have followed is lost, or
    spared where it is below 0. Evaluations play theirs to the end, and their rewards, costs and lengths do not compare
    with those of training."""
    gamma: float = setting(0.99, above=0, most=1, span="in (0, 1]")
    """Discount of reward and of cost."""
    hidden: tuple[int, ...] = setting((64, 64), least=1, ceiling=16_384)
    """Widths of the hidden layers, of policy and critics."""
    activation: Activation = "tanh"
    """Of the hidden layers, of policy and critics."""
    network: Network = "mlp"
    """mlp: hidden layers alone, to which images are vectors; cnn: images pass up to three convolutions before them."""
    initialisation: Initialisation = "uniform"
    """The first weights. uniform: those of PyTorch's linear layers; orthogonal: with gains of √2 in hidden layers, 0.01
    in the policy's last one and 1 in the critics', and biases of 0."""
    initial_log_std: float = setting(0.0, least=-20, most=2)
    """Logarithm of the policy's standard deviation at first, in units of half the range of actions."""
    normalise_observations: bool = True
    """Whether observations are normalised by their running mean and deviation; a cnn's pixels go from their bounds to
    [-1, 1] instead. Without, networks see what the environment gives."""
    statistics: Statistics = "running"
    """Of observations. running: as published, they move with every step, and the policy with them; steady: after the
    first epoch they grow between epochs, and first layers change so that policy and critics stay what they are."""
    init_from: str | None = None
    """Begin with the policy of a run's folder or of a file that `sbtrpo export --format policy` wrote, and with the
    critics there where they fit. The run keeps a copy."""
    init_which: Which = setting("last", least=0, operational=True)  # the policy itself tells runs apart
    """With which checkpoint of that run: last, best, or an epoch's number."""
    fidelity: Fidelity = "paper"
    """paper: quirks of the published code as they are; corrected: without them. Each is also a setting by itself."""
    engine: Engine = setting("auto", operational=True)
    """What simulates the worlds: cpu, all cores; gpu, one GPU; auto takes the GPU where there is one and so many worlds
    make it the faster one, unless device is cpu. Numbers of the two agree but for rounding. gpu-on-cpu is for tests: it
    does on the CPU what gpu does, slowly."""
    device: str = setting("auto", operational=True)
    """Where the learner's tensors live: cpu or cuda; auto: where the worlds are."""
    threads: int = setting(0, least=0, ceiling=4096, operational=True)
    """Threads of the simulator; 0 takes all cores."""
    learner_threads: int = setting(0, least=0, ceiling=4096, operational=True)
    """Threads of the update; 0 takes one where steps_per_epoch is at most 65,536, however epochs grow, and PyTorch's
    choice where it is more. Last digits depend on how work is split among threads, so a run of small epochs has the
    same numbers on any number of cores. On idle cores more threads are faster; on busy ones they wait for each
    other."""
    env_timeout: float = setting(TIMEOUT, above=0, ceiling=10**7, operational=True)
    """Seconds after which a process with worlds of your own environment counts as hung, and is replaced."""
    keep_last: int = setting(2, least=1, ceiling=10**9, operational=True)
    """Checkpoints kept from the end of the run."""
    keep_every: int = setting(100, least=0, ceiling=10**9, operational=True)
    """One checkpoint in so many epochs is kept for good; 0 keeps none."""
    checkpoint_every: int = setting(1, least=1, ceiling=10**9, operational=True)
    """Epochs between checkpoints: a kill loses at most so many."""
    halves_every: int = setting(10, least=0, ceiling=10**9, operational=True)
    """In one of so many epochs trust-region methods tell how much of what they learn from half of the worlds holds in
    the others (holds_r and holds_c in metrics.csv), which takes another two or three solves; 0: never."""
    evaluate_every: int = setting(0, least=0, ceiling=10**9, needs="patience")
    """Epochs between evaluations of the policy on fresh worlds, which leave the training as it is; 0: none."""
    evaluate_episodes: int = setting(100, least=1, ceiling=10**6, needs="patience")
    """Episodes of such an evaluation."""
    patience: int = setting(0, least=0, ceiling=10**9)
    """The run stops after so many evaluations in a row that are no better than an earlier one; 0 trains to the end."""

    @property
    def update_threads(self) -> int:
        """Threads of all updates; 0 for PyTorch's choice. Where epochs grow, the length of the first decides."""
        return self.learner_threads or (1 if self.steps_per_epoch <= SMALL_EPOCH else 0)

    @property
    def epochs(self) -> int:
        """Number of epochs: those that end within total_steps."""
        return _epochs_within(self.total_steps // self.steps_per_epoch, self.epoch_growth)

    def steps_after(self, epochs: int) -> int:
        """Environment steps of so many epochs from the beginning of a run, over all worlds."""
        return self.steps_per_epoch * _length(epochs, self.epoch_growth)

    def steps_in(self, epoch: int) -> int:
        """Environment steps of the epoch that comes after so many, over all worlds."""
        return self.steps_after(epoch + 1) - self.steps_after(epoch)

    def worlds_in(self, epoch: int) -> int:
        """Worlds of the epoch that comes after so many."""
        if self.grow_by == "steps":
            return self.num_envs
        return self.num_envs * self.steps_in(epoch) // self.steps_per_epoch

    @property
    def mean_worlds(self) -> int:
        """Worlds of an epoch, on average."""
        if self.grow_by == "steps":
            return self.num_envs
        return self.num_envs * self.steps_after(self.epochs) // (self.steps_per_epoch * self.epochs)

    def share_after(self, epochs: int) -> float:
        """The share of the run that is over after so many epochs, in steps."""
        return self.steps_after(epochs) / self.steps_after(self.epochs)


# ---- epochs that grow, in multiples of the first -------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _length(epochs: int, growth: float) -> int:
    """Of so many epochs."""
    if not growth:
        return epochs
    ends = _ends(growth)
    if epochs <= (alike := next(ends)):
        return epochs
    for length in itertools.islice(ends, epochs - alike - 1, None):
        return length
    raise ValueError(f"no run has {epochs:,} epochs where epoch_growth is {growth:g}")


@functools.lru_cache(maxsize=4096)
def _epochs_within(length: int, growth: float) -> int:
    """How many whole epochs that is."""
    if not growth:
        return length
    ends = _ends(growth)
    if length <= (alike := next(ends)):
        return length
    return alike + sum(1 for _ in itertools.takewhile(lambda end: end <= length, ends))


def _ends(growth: float) -> Iterator[int]:
    """Where epochs end: the last of those at the beginning that are all alike, then each of the longer ones.

    The share is taken as the decimal number that stands in the settings, and all else are whole numbers. So lengths are
    the same on every machine: 0.0048 of 625 is 3, which a product of floating-point numbers falls short of.
    """
    share = Fraction(str(growth))
    end = math.ceil(2 / share)
    yield end
    while end <= MOST_STEPS:
        end += end * share.numerator // share.denominator
        yield end
