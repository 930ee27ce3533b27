import numpy as np
import pytest
import torch

from sbtrpo.envs import make_pool
from sbtrpo.learning.rollout import Collector, Rollout
from sbtrpo.nets.policy import Policy

TOY, HOPPER = "ToyCorridor-v0", "SafetyHopperVelocity-v1"
WORLDS = 3


def make_collector(task: str, seed: int = 0) -> Collector:
    pool = make_pool(task, WORLDS, seed, threads=1)
    size, actions = pool.task.observation_size, pool.single_action_space.shape[0]
    policy = Policy(size, actions, (16, 16), torch.Generator().manual_seed(seed))
    collector = Collector(pool, policy, torch.Generator().manual_seed(seed + 1))
    collector.start()
    return collector


def follow(rollout: Rollout, length: int, age: list[int]) -> None:
    """Check the time of every step from the ends of episodes, and advance the ages."""
    ended = (rollout.terminated | rollout.truncated).tolist()
    for t, now in enumerate(rollout.time):
        assert now.tolist() == pytest.approx([a / length for a in age])
        age[:] = [0 if end else a + 1 for a, end in zip(age, ended[t], strict=True)]


@pytest.mark.parametrize(("task", "steps"), [(TOY, 120), (HOPPER, 150)])
def test_rollout_has_its_shapes_and_belongs_to_the_policy(task: str, steps: int) -> None:
    collector = make_collector(task)
    size, actions = collector.pool.task.observation_size, len(collector.policy.log_std)
    rollout = collector.collect(steps)
    assert rollout.obs.shape == (steps, WORLDS, size)
    assert rollout.action.shape == (steps, WORLDS, actions)
    for part in (rollout.log_prob, rollout.reward, rollout.cost, rollout.terminated, rollout.truncated, rollout.time):
        assert part.shape == (steps, WORLDS)
    assert rollout.last_obs.shape == (WORLDS, size)
    assert rollout.terminated.dtype == rollout.truncated.dtype == torch.bool
    assert torch.isfinite(rollout.obs).all()
    expected = collector.policy.log_prob(rollout.obs, rollout.action)
    torch.testing.assert_close(rollout.log_prob, expected, rtol=1e-5, atol=1e-5)
    assert float(rollout.action.std()) > 0.5  # neither clipped nor scaled
    ended = rollout.terminated | rollout.truncated
    assert len(rollout.episodes["return"]) == int(ended.sum()) > 0
    assert ended[rollout.episodes["step"], rollout.episodes["world"]].all()


def test_time_begins_anew_with_every_episode_and_episodes_go_on_across_epochs() -> None:
    for task, length in ((TOY, 50), (HOPPER, 1000)):
        collector, age = make_collector(task), [0] * WORLDS
        rewards: list[torch.Tensor] = []
        for _ in range(2):
            rollout = collector.collect(70)  # not a multiple of the episode's length
            follow(rollout, length, age)
            rewards.append(rollout.reward)
        ends, episodes = rollout.terminated | rollout.truncated, rollout.episodes
        assert ends.any()
        both = torch.cat(rewards).double()
        for step, world, total, steps in zip(
            *(episodes[k] for k in ("step", "world", "return", "length")), strict=True
        ):
            rewards_of_episode = both[70 + step + 1 - steps : 70 + step + 1, world]  # perhaps begun in the epoch before
            assert float(rewards_of_episode.sum()) == pytest.approx(total, abs=1e-4)


def test_what_follows_the_last_step_is_what_the_next_epoch_begins_with() -> None:
    collector = make_collector(TOY)
    first, second = collector.collect(30), collector.collect(30)
    assert torch.equal(first.last_obs, second.obs[0])


def test_final_observations_are_those_of_timed_out_episodes_in_their_order() -> None:
    collector = make_collector(TOY)
    collector.pool.task.position[:] = 0  # type: ignore[attr-defined]
    rollout = collector.collect(120)
    timed_out = rollout.truncated & ~rollout.terminated
    assert int(timed_out.sum()) == len(rollout.final_obs) == len(rollout.final_obs_raw) == 2 * WORLDS
    # The corridor's x is the return so far: the last observation of an episode shows its whole return.
    order = np.lexsort((rollout.episodes["world"], rollout.episodes["step"]))
    np.testing.assert_allclose(rollout.final_obs_raw[:, 0], rollout.episodes["return"][order], atol=1e-5)
    steps, worlds = torch.nonzero(timed_out, as_tuple=True)
    assert steps.tolist() == rollout.episodes["step"][order].tolist()
    assert worlds.tolist() == rollout.episodes["world"][order].tolist()
    # Normalised with the statistics of their time, which hold more than the first observations but less than all.
    assert (rollout.final_obs != rollout.final_obs_raw).any()
    np.testing.assert_allclose(
        collector.policy.normaliser(rollout.final_obs_raw.double().numpy())[-WORLDS:],
        rollout.final_obs[-WORLDS:],
        atol=0.3,
    )


def test_terminated_episodes_leave_no_final_observation() -> None:
    rollout = make_collector(HOPPER).collect(150)
    assert rollout.terminated.any()
    assert not rollout.truncated.any()
    assert rollout.final_obs.shape == rollout.final_obs_raw.shape == (0, rollout.obs.shape[2])


def test_a_loaded_collector_goes_on_as_the_saved_one() -> None:
    one, other = make_collector(TOY), make_collector(TOY, seed=7)
    one.collect(30)
    other.load_state_dict(one.state_dict())
    other.policy.load_state_dict(one.policy.state_dict())
    expected, resumed = one.collect(60), other.collect(60)
    for name in ("obs", "action", "reward", "cost", "time", "final_obs"):
        assert torch.equal(getattr(resumed, name), getattr(expected, name)), name
