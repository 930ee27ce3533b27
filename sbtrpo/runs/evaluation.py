"""How good and how safe a trained policy is: many fresh episodes, frozen statistics, intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from sbtrpo.config import TrainConfig
from sbtrpo.config.run import TIMEOUT, Faulted
from sbtrpo.config.tasks import is_foreign, task_entry, with_env_kwargs
from sbtrpo.envs import Pool, make_pool
from sbtrpo.envs.arrays import is_mark, put, to_numpy, which
from sbtrpo.envs.constraints import make_constraints
from sbtrpo.envs.engines import choose
from sbtrpo.errors import UserError
from sbtrpo.nets.forms import TorchForm
from sbtrpo.nets.images import Image
from sbtrpo.nets.network import Design
from sbtrpo.nets.policy import Policy
from sbtrpo.runs.actors import Actor, no_policy, open_actor
from sbtrpo.runs.checkpoint import CheckpointStore, check_form, fitting
from sbtrpo.runs.folder import RunFolder
from sbtrpo.runs.intervals import clopper_pearson_upper, wilson_interval
from sbtrpo.runs.policy_file import as_policy, is_policy_file, stored_policy

CONSTRAINT = "constraint_"
"""What the columns of constraints begin with."""
WORLDS, FOREIGN_WORLDS, DEVICE_WORLDS = 200, 20, 2048
"""The most worlds that play at once; a foreign environment is a simulator of its own."""
DEVICES = {"gpu": "cuda", "gpu-on-cpu": "cpu"}
"""Where a policy acts in the worlds of an engine; in others it acts on NumPy arrays."""
PATIENCE = 50
"""Steps on a device between two looks at what they led to."""


class NoEpisodes(UserError):  # noqa: N818
    """Faults have left no episode that counts."""


@dataclass(frozen=True)
class Evaluation:
    """The result of many episodes."""

    task: str
    episodes: int
    deterministic: bool | None
    """Whether actions were the policy's means; None where only the policy knows."""
    reward: float
    reward_std: float
    cost: float
    cost_std: float
    safety_probability: float
    """Share of the episodes in which no constraint was violated, and no fault cut them short."""
    safety_probability_interval: tuple[float, float]
    """Wilson's interval at 95 %."""
    violation_probability_upper: float
    """Clopper and Pearson's one-sided upper bound at 95 %."""
    safe_reward: float
    """Mean reward, unsafe episodes counting 0."""
    safe_episodes_reward: float | None
    """Mean reward of the safe episodes; None where there is none."""
    length: float
    faults: int
    """Worlds that failed while the episodes were played."""
    faulted_episodes: int = 0
    """How many of the episodes a fault has cut."""
    faulted: Faulted = "unsafe"
    """What these count as; "apart" leaves them out of all numbers above."""
    constraints: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Each constraint by itself, where they are not the task's total cost: cost and safety probability."""
    policy: str = ""
    """What was evaluated: a run's method, a file, or the name of a callable."""
    checkpoint: int | None = None
    """The epoch of a run's checkpoint."""
    seed: int | None = None
    engine: str = "cpu"
    safe_reward_std: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def numbers(self) -> dict[str, float]:
        """For a row of a table."""
        low, high = self.safety_probability_interval
        numbers: dict[str, float] = {
            "episodes": self.episodes,
            "reward": self.reward,
            "reward_std": self.reward_std,
            "cost": self.cost,
            "cost_std": self.cost_std,
            "safety_probability": self.safety_probability,
            "safety_low": low,
            "safety_high": high,
            "violation_probability_upper": self.violation_probability_upper,
            "safe_reward": self.safe_reward,
            "length": self.length,
            "faulted_episodes": self.faulted_episodes,
        }
        for name, by_itself in self.constraints.items():
            numbers |= {f"cost_{name}": by_itself["cost"], f"safety_{name}": by_itself["safety_probability"]}
        return numbers


def load_policy(run: str | Path, which: Literal["last", "best"] | int = "last", device: str | None = None) -> Policy:
    """The policy of a run's checkpoint, or of a policy's file, with the observation statistics it was trained with.

    It is on a device if one is named.

    >>> import tempfile, numpy as np
    >>> from sbtrpo import TrainConfig, train
    >>> config = TrainConfig(task="ToyCorridor-v0", num_envs=4, steps_per_epoch=200, total_steps=200)
    >>> policy = load_policy(train(config, out=tempfile.mkdtemp(), quiet=True))
    >>> policy.act(np.zeros((3, 2)), deterministic=True).shape
    (3, 2)
    """
    if is_policy_file(run):
        stored = stored_policy(run, which)
        with as_policy(run):
            return policy_from(stored.policy, stored.network, device)
    folder = RunFolder.open(run)
    _, state = CheckpointStore(folder.checkpoints).load(which)
    with fitting(folder.path):
        return policy_from(state["policy"], folder.config, device)


def policy_from(saved: Mapping[str, Any], config: TrainConfig, device: str | None = None) -> Policy:
    """A policy of its own, with the parameters and statistics of a policy's `state_dict`; on a device if named."""
    inputs, actions, discrete = len(saved["normaliser"]["mean"]), len(saved["params"][-1]), not len(saved["params"][0])
    design = Design.of(config, Image.from_dict(saved["image"]) if config.network == "cnn" else None)
    policy = Policy(
        inputs, actions, config.hidden, torch.Generator(), device or "cpu", discrete=discrete, design=design
    )
    if device is not None:
        policy.use(TorchForm(device))
    check_form({**saved, "action": {}}, policy.state_dict(), "policy")  # of which only the run knows the form
    policy.load_state_dict(saved)
    return policy


@dataclass(frozen=True)
class Subject:
    """A policy that is to be tried, wherever it comes from."""

    name: str
    """A run's method and seed, a file, or the name of a callable."""
    config: TrainConfig
    """The task, and the constraints there."""
    home: Path
    """Where files about it go."""
    stem: str
    """What they are called; empty for a run."""
    checkpoint: int | None
    load: Callable[[str | None], Policy | Actor]
    """The policy, on a device if one is named."""

    def evaluate(
        self, episodes: int, seed: int, deterministic: bool = False, threads: int = 0,
        progress: Callable[[int], None] | None = None, faulted: Faulted | None = None, engine: str = "cpu",
        env_timeout: float | None = None,
    ) -> Evaluation:  # fmt: skip
        """As `evaluate` does."""
        changes = {"faulted": faulted, "env_timeout": env_timeout}
        config = self.config.replace(**{name: value for name, value in changes.items() if value is not None})
        engine = choose(engine, config.task, episodes).engine
        policy = self.load(DEVICES.get(engine))
        result = evaluate_policy(policy, config, episodes, seed, deterministic, threads, progress, engine)
        return replace(result, policy=self.name, checkpoint=self.checkpoint)


def subject(
    policy: Any,
    which: Literal["last", "best"] | int = "last",
    task: str | None = None,
    env_kwargs: Mapping[str, Any] | Iterable[str] = (),
) -> Subject:
    """A run's policy, one in a file (.safetensors, .onnx, TorchScript), behind `module:policy`, or given as it is.

    Args:
        policy: that.
        which: a run's last checkpoint, its best one, or that of an epoch.
        task: where to try it; the run's, or the one that the file names, if left out.
        env_kwargs: keyword arguments of an environment of your own.
    """
    if (actor := open_actor(policy)) is not None:
        if which != "last":
            raise ValueError(f"which names a checkpoint of a run, and {actor.name} has none; leave it out")
        if (chosen := task or actor.task) is None:
            raise ValueError(f"name the task that {actor.name} is to be tried on with --task")
        config = TrainConfig(task=chosen, env_kwargs=env_kwargs)
        return Subject(actor.name, config, actor.home, actor.stem, None, lambda _: actor)
    if is_policy_file(policy):
        config, path = stored_policy(policy, which).config(task, env_kwargs), Path(policy)
        return Subject(
            str(path), config, path.parent, path.stem, None, lambda device: load_policy(path, "last", device)
        )
    folder = RunFolder.open(policy)
    config, epoch = folder.config, CheckpointStore(folder.checkpoints).epoch(which)
    name = f"{config.label}, seed {config.seed}"
    chosen = with_env_kwargs(task or config.task, env_kwargs)
    if task_entry(chosen) != config.task_entry:
        config = config.replace(task=chosen, constraints=None)
    return Subject(name, config, folder.path, "", epoch, lambda device: load_policy(policy, epoch, device))


def home_of(policy: str) -> Path:
    """Where files about a policy go: a run's folder, that of an exported file, or this one."""
    path = Path(policy)
    if not path.exists() and ":" not in policy:
        raise no_policy(policy)
    return path if path.is_dir() else path.parent if path.exists() else Path()


def evaluate(
    policy: Any,
    episodes: int = 100,
    seed: int = 7,
    deterministic: bool = False,
    which: Literal["last", "best"] | int = "last",
    threads: int = 0,
    progress: Callable[[int], None] | None = None,
    faulted: Faulted | None = None,
    engine: str = "cpu",
    task: str | None = None,
    env_timeout: float | None = None,
    env_kwargs: Mapping[str, Any] | Iterable[str] = (),
) -> Evaluation:
    """Evaluate a policy on fresh layouts, all worlds in parallel.

    Every world contributes the same number of its first episodes, so that short episodes do not count for more.

    Args:
        policy: a run's folder; an exported file, .safetensors, .onnx or TorchScript; `module:policy`; or a callable
            from observations (N, observation size) to actions, or an object with Stable-Baselines3's `predict`. Loading
            TorchScript or a module runs the code in it.
        episodes: how many.
        seed: of the layouts and of the policy's noise; take one that training did not use.
        deterministic: act by the policy's mean.
        which: a run's last checkpoint, the best one, or that of an epoch.
        threads: of the simulator; 0 takes all cores.
        progress: told the number of finished episodes from time to time.
        faulted: what episodes count as that a fault has cut, "unsafe" or "apart"; what the run says if left out.
        engine: what simulates the worlds, "cpu", "gpu", or "auto" for the faster one.
        task: where to try it; the run's, or what the file says, if left out.
        env_timeout: seconds after which an environment of your own counts as hung; as in training if left out.
        env_kwargs: keyword arguments of an environment of your own, a dict, or `name=value` each.

    >>> import numpy as np
    >>> evaluate(lambda obs: np.zeros((len(obs), 2)), episodes=10, task="ToyCorridor-v0").episodes
    10
    """
    tried = subject(policy, which, task, env_kwargs)
    return tried.evaluate(episodes, seed, deterministic, threads, progress, faulted, engine, env_timeout)


def evaluate_policy(
    policy: Policy | Actor, config: TrainConfig, episodes: int, seed: int, deterministic: bool = False,
    threads: int = 0, progress: Callable[[int], None] | None = None, engine: str = "cpu",
    stopping: Callable[[], bool] = lambda: False,
) -> Evaluation:  # fmt: skip
    """The same of a policy that is at hand, on the task and with the constraints of these settings.

    A world that does not answer is not waited for once somebody is `stopping`.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    played, faults = play(
        policy, config.task, episodes, seed, deterministic, threads, progress, config.constraints, config.faulted,
        engine, config.env_timeout, stopping,
    )  # fmt: skip
    cut = played.pop("faulted").astype(np.bool_)
    if config.faulted == "apart":
        if cut.all():
            raise NoEpisodes(
                f"all {episodes} episodes were cut by faults, so that apart from them none is left; mend the"
                " environment, or let them count as unsafe (faulted=unsafe)"
            )
        played = {name: values[~cut] for name, values in played.items()}
    names = [name for name in played if name.startswith(CONSTRAINT)]
    violated = np.any([played[name] > 0 for name in names or ["cost"]], axis=0)
    unsafe, counted, safe_returns = int(violated.sum()), len(violated), played["return"][~violated]
    counting = played["return"] * ~violated
    return Evaluation(
        task=config.task_entry.label,
        episodes=episodes,
        deterministic=policy.by_mean(deterministic) if isinstance(policy, Actor) else deterministic,
        reward=float(played["return"].mean()),
        reward_std=float(played["return"].std()),
        cost=float(played["cost"].mean()),
        cost_std=float(played["cost"].std()),
        safety_probability=1 - unsafe / counted,
        safety_probability_interval=wilson_interval(counted - unsafe, counted),
        violation_probability_upper=clopper_pearson_upper(unsafe, counted),
        safe_reward=float(counting.mean()),
        safe_reward_std=float(counting.std()),
        safe_episodes_reward=float(safe_returns.mean()) if len(safe_returns) else None,
        length=float(played["length"].mean()),
        faults=faults,
        faulted_episodes=int(cut.sum()),
        faulted=config.faulted,
        constraints={name.removeprefix(CONSTRAINT): _by_itself(played[name]) for name in names},
        seed=seed,
        engine=engine,
    )


def _by_itself(costs: NDArray[Any]) -> dict[str, Any]:
    """What the episodes say of one constraint."""
    kept, episodes = int((costs == 0).sum()), len(costs)
    return {
        "cost": float(costs.mean()),
        "safety_probability": kept / episodes,
        "safety_probability_interval": wilson_interval(kept, episodes),
    }


def play(
    policy: Policy | Actor, task: str, episodes: int, seed: int, deterministic: bool, threads: int = 0,
    progress: Callable[[int], None] | None = None, constraints: Sequence[str] = ("sum",), faulted: Faulted = "unsafe",
    engine: str = "cpu", timeout: float = TIMEOUT, stopping: Callable[[], bool] = lambda: False,
) -> tuple[dict[str, NDArray[Any]], int]:  # fmt: skip
    """Whole episodes of a policy: return, cost, length and `faulted` of each, and the number of worlds that failed.

    Where the constraints are not the total cost, each has its cost in an entry `constraint_<name>`, too. Unless they
    count apart, a fault costs 1.
    """
    most = FOREIGN_WORLDS if is_foreign(task) else WORLDS if engine == "cpu" else DEVICE_WORLDS
    pool = make_pool(task, min(episodes, most), seed, engine, threads, timeout=timeout, stopping=stopping)
    chosen = make_constraints(constraints, pool)
    names = [] if chosen.names == ("cost",) else [f"{CONSTRAINT}{name}" for name in chosen.names]
    obs, _ = pool.reset()
    act, share = acting(policy, pool, deterministic, seed), -(-episodes // pool.num_worlds)
    tables = _Tables(("return", "cost", "length", "faulted", *names), share, obs)
    sums = [_zeros(obs, (len(obs),)) for _ in names]
    price, steps = float(faulted == "unsafe"), 0
    while not steps or (steps % tables.patience) or tables.missing:
        obs, _, cost, _, _, info = pool.step(act(obs))
        steps += 1
        for total, values in zip(sums, chosen.costs(cost, info) if names else (), strict=True):
            total += values + price * info["fault"]
        if "episode" in info:
            ended = {**info["episode"], **dict(zip(names, sums, strict=True)), "faulted": info["fault"]}
            ended["cost"] = ended["cost"] + price * info["fault"]
            tables.add(info["_episode"], ended)
            for total in sums:
                put(total, which(info["_episode"]), 0.0)
            if progress is not None and steps % tables.patience == 0:
                progress(tables.found)
    return tables.first(episodes), pool.faults


def acting(policy: Policy | Actor, pool: Pool, deterministic: bool, seed: int) -> Callable[[Any], Any]:
    """What acts in a pool; on a device its noise comes in blocks, so that no step waits for the host."""
    if isinstance(policy, Actor):
        return policy.in_pool(pool, deterministic, seed)
    _check_fit(policy, pool)
    noise = torch.Generator().manual_seed(seed)
    device = getattr(getattr(pool, "physics", None), "device", None)
    if device is None:
        return lambda obs: policy.act_in_pool(obs, deterministic, noise)
    block: list[torch.Tensor] = []
    normalise: Any = policy.normaliser

    @torch.no_grad()
    def act(obs: torch.Tensor) -> Any:
        outputs = policy.mean(normalise(obs).to(policy.log_std.dtype))
        if deterministic:
            return policy.to_env(policy.head.mode(outputs))
        if not block:
            drawn = policy.head.noise(torch, (PATIENCE, pool.num_worlds), noise)
            block.extend(drawn.to(outputs).unbind())
        return policy.to_env(policy.head.sample(torch, outputs, policy.log_std, block.pop()))

    return act


def _check_fit(policy: Policy, pool: Pool) -> None:
    """Refuse a task whose observations or actions are not those that a policy was trained with."""
    space: Any = pool.env_action_space
    discrete = isinstance(space, Discrete)
    ours = len(policy.normaliser.mean), policy.head.discrete, policy.head.outputs
    theirs = pool.task.observation_size, discrete, int(space.n) if discrete else math.prod(space.shape)
    if ours != theirs:
        forms = [
            f"{size} observations and {count} {'choices' if d else 'actions'}" for size, d, count in (ours, theirs)
        ]
        raise UserError(
            f"the policy was trained with {forms[0]}, and {pool.spec.id} has {forms[1]}; choose another task"
        )


def _zeros(like: Any, shape: tuple[int, ...], kind: str = "float64") -> Any:
    """Zeros beside an array or tensor."""
    return like.new_zeros(shape, dtype=getattr(torch, kind)) if is_mark(like) else np.zeros(shape, kind)


class _Tables:
    """Every world's first episodes: as many of each, so that short ones do not count for more."""

    def __init__(self, names: Sequence[str], share: int, like: Any) -> None:
        self._marked, self._share = is_mark(like), share
        self._tables = {name: _zeros(like, (share, len(like))) for name in names}
        self._done = _zeros(like, (len(like),), "int64")
        self.patience = PATIENCE if self._marked else 1
        """After so many steps it is worth asking whether all is done: on a device the answer has to be waited for."""

    def add(self, ended: Any, columns: Mapping[str, Any]) -> None:
        """Take down the episodes that ended in a step, where they are still wanted."""
        wanted = ended & (self._done < self._share)
        for name, table in self._tables.items():
            if self._marked:
                place = self._done.clamp(max=self._share - 1)[None]
                values = columns[name].double().where(wanted, table.gather(0, place)[0])
                table.scatter_(0, place, values[None])
            else:
                table[self._done[wanted], wanted] = columns[name][wanted]
        self._done += wanted

    @property
    def found(self) -> int:
        """How many episodes there are."""
        return int(self._done.sum())

    @property
    def missing(self) -> int:
        """How many are still to come."""
        return int(self._share * len(self._done)) - self.found

    def first(self, episodes: int) -> dict[str, NDArray[Any]]:
        """The first ones of every world, then the second ones, ...: as many as are asked for."""
        return {name: to_numpy(table).reshape(-1)[:episodes] for name, table in self._tables.items()}
