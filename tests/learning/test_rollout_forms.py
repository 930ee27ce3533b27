"""Rollouts in both forms, from pools of NumPy arrays and of tensors, under one constraint and under several."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest
import torch

from sbtrpo.envs import Pool, make_pool
from sbtrpo.learning.rollout import Collector, Rollout
from sbtrpo.nets.forms import Form, NumpyForm, TorchForm
from sbtrpo.nets.policy import Policy
from tests.devices import DEVICE, assert_close, double_forms

TOY, HOPPER = "ToyCorridor-v0", "SafetyHopperVelocity-v1"
WORLDS = 3
TENSORS = ("obs", "action", "log_prob", "signals", "terminated", "truncated", "time", "last_obs", "final_obs")


class TensorPool:
    """A pool whose arrays are tensors on the device, as those of an engine there would be."""

    def __init__(self, pool: Pool) -> None:
        self._pool, self.stepped_with = pool, set[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def reset(self) -> tuple[Any, dict[str, Any]]:
        return _on_device(self._pool.reset()[0]), {}

    def step(self, action: Any) -> Any:
        self.stepped_with.add(type(action).__name__)
        return tuple(_on_device(values) for values in self._pool.step(action.cpu().numpy()))


def _on_device(values: Any) -> Any:
    if isinstance(values, Mapping):
        return {name: _on_device(entry) for name, entry in values.items()}
    return torch.tensor(np.asarray(values), device=DEVICE)


@dataclass(frozen=True)
class Shares:
    """Two constraints that are shares of the total cost and of the steps, for a task that has one component only."""

    names: tuple[str, ...] = ("strip", "time")

    def costs(self, cost: Any, info: Mapping[str, Any]) -> list[Any]:
        return [0.25 * info["cost_strip"], cost * 0 + 0.1]


def collector(
    form: Form, task: str = TOY, tensors: bool = False, constraints: Any = None, seed: int = 0, device: str = ""
) -> Collector:
    """In double precision, as its form; with a policy on a device, that of the form if left out."""
    pool: Any = make_pool(task, WORLDS, seed, threads=1)
    size, actions = pool.task.observation_size, pool.single_action_space.shape[0]
    policy = Policy(size, actions, (16, 16), torch.Generator().manual_seed(seed), device or form.device)
    policy.params = [tensor.double() for tensor in policy.params]
    policy.params[-1][1] += 0.5  # towards the corridor's strip
    source = cast("Pool", TensorPool(pool)) if tensors else pool
    made = Collector(source, policy, torch.Generator().manual_seed(seed + 1), constraints, form)
    made.start()
    return made


def assert_alike(ours: Rollout, theirs: Rollout) -> None:
    for name in TENSORS:
        assert_close(getattr(ours, name), getattr(theirs, name))
    assert ours.episodes.keys() == theirs.episodes.keys()
    for name, values in ours.episodes.items():
        assert isinstance(values, np.ndarray)
        assert values.dtype == theirs.episodes[name].dtype
        assert_close(values, theirs.episodes[name])
    assert ours.faults == theirs.faults


@pytest.mark.parametrize("tensors", [False, True], ids=["numpy pool", "tensor pool"])
@pytest.mark.parametrize(("task", "steps"), [(TOY, 120), (HOPPER, 60)])
def test_both_forms_collect_the_same(task: str, steps: int, tensors: bool) -> None:
    numpy, torches = double_forms()
    one, other = collector(numpy, task), collector(torches, task, tensors)
    for _ in range(2):
        expected, rollout = one.collect(steps), other.collect(steps)
        assert len(expected.episodes["return"]) > 0
        assert_alike(rollout, expected)
        assert all(getattr(rollout, name).device.type == torch.device(DEVICE).type for name in TENSORS)
    assert_close(other.policy.normaliser.mean, one.policy.normaliser.mean)
    if tensors:
        assert cast("Any", other.pool).stepped_with == {"Tensor"}


def test_a_policy_on_a_device_acts_on_the_host_and_what_it_saw_is_on_the_device() -> None:
    one = collector(NumpyForm(np.float64, learner=DEVICE), device=DEVICE)
    other = collector(TorchForm(DEVICE, torch.float64))
    for _ in range(2):
        rollout, expected = one.collect(60), other.collect(60)
        assert_alike(rollout, expected)
        assert all(getattr(rollout, name).device == getattr(expected, name).device for name in TENSORS)
    seen = np.ones((3, one.policy.observation_size))
    assert_close(one.policy.act(seen, deterministic=True), other.policy.act(seen, deterministic=True))


def test_a_pool_of_tensors_is_never_met_with_numpy_arrays() -> None:
    made = collector(NumpyForm(), tensors=True)
    assert isinstance(made.form, TorchForm)


@pytest.mark.parametrize("back", [False, True], ids=["to torch", "to numpy"])
@pytest.mark.parametrize("constraints", [None, Shares()], ids=["one constraint", "two"])
def test_a_collector_goes_on_from_the_state_of_the_other_form(back: bool, constraints: Any) -> None:
    forms = double_forms()[::-1] if back else double_forms()
    one, other = (collector(form, constraints=constraints, seed=seed) for seed, form in enumerate(forms))
    one.collect(30)  # into the middle of the first episodes
    other.load_state_dict(one.state_dict())
    other.policy.load_state_dict(one.policy.state_dict())
    assert_alike(other.collect(60), one.collect(60))
    ours, theirs = one.state_dict(), other.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(isinstance(theirs[name], np.ndarray) for name in ("obs", "age"))
    assert theirs["age"].dtype == np.int64


# ---- constraints ---------------------------------------------------------------------------------------------------


NUMPY, TORCH = double_forms()


@pytest.mark.parametrize(
    ("form", "tensors"), [(NUMPY, False), (TORCH, False), (TORCH, True)], ids=["numpy", "torch", "torch, tensor pool"]
)
def test_several_constraints_are_told_apart_over_episodes_that_span_rollouts(form: Form, tensors: bool) -> None:
    made = collector(form, constraints=Shares(), tensors=tensors)
    total = collector(form)
    parts = [made.collect(steps) for steps in (70, 60)]  # episodes of 50 steps
    whole = torch.cat([part.signals for part in parts], dim=1)
    assert whole.shape == (3, 130, WORLDS)
    plain = torch.cat([total.collect(steps).signals for steps in (70, 60)], dim=1)
    assert_close(whole[0], plain[0])
    assert_close(whole[1], 0.25 * plain[1])
    assert_close(whole[2], torch.full_like(plain[1], 0.1))
    assert float(plain[1].sum()) > 0
    begun = 0
    for part, offset in zip(parts, (0, 70), strict=True):
        ended = part.episodes
        assert len(ended["cost"]) > 0
        assert_close(ended["constraint_strip"], 0.25 * ended["cost"])
        assert_close(ended["constraint_time"], 0.1 * ended["length"])
        begun += int((ended["step"] + 1 + offset - ended["length"] < offset).sum())
    assert begun > 0
    assert parts[0].signals.shape[0] == 3
    with pytest.raises(ValueError, match="2 constraints and no single cost"):
        _ = parts[0].cost


@pytest.mark.parametrize("constraints", [None, "one"])
def test_one_constraint_is_told_apart_from_the_total_cost_alone(constraints: Any) -> None:
    @dataclass(frozen=True)
    class Half:
        names: tuple[str, ...] = ("half",)

        def costs(self, cost: Any, info: Mapping[str, Any]) -> list[Any]:
            return [cost / 2]

    made = collector(NumpyForm(np.float64), constraints=Half() if constraints else None)
    rollout = made.collect(60)
    assert rollout.signals.shape == (2, 60, WORLDS)
    assert rollout.cost.data_ptr() == rollout.signals[1].data_ptr()
    kept = {"constraint_costs"} if constraints else set()
    assert set(made.state_dict()) == {"pool", "obs", "age", "generator"} | kept
    told = [name for name in rollout.episodes if name.startswith("constraint")]
    assert told == (["constraint_half"] if constraints else [])
    assert float(rollout.cost.max()) == (0.5 if constraints else 1.0)


# ---- the protocol --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [NUMPY, TORCH], ids=["numpy", "torch"])
def test_whoever_steps_the_pool_gets_arrays_of_its_kind(form: Form) -> None:
    made, other = collector(form), collector(form)
    play = made.play(60)
    action = next(play)
    rollout = None
    while rollout is None:
        assert isinstance(action, np.ndarray)
        assert action.shape == (WORLDS, 2)
        try:
            action = play.send(made.pool.step(action))
        except StopIteration as end:
            rollout = end.value
    assert_alike(rollout, other.collect(60))
