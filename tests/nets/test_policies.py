"""Policies that act together act as each does alone."""

from __future__ import annotations

import pytest
import torch

from sbtrpo.nets.forms import TorchForm
from sbtrpo.nets.network import PUBLISHED, Design
from sbtrpo.nets.policies import Policies
from sbtrpo.nets.policy import Policy
from tests.devices import DEVICE

K, WORLDS, SIZE, ACTIONS = 3, 5, 7, 2


def policies(design: Design = PUBLISHED) -> list[Policy]:
    made = []
    for seed in range(K):
        generator = torch.Generator().manual_seed(seed)
        policy = Policy(SIZE, ACTIONS, (8, 8), generator, DEVICE, design=design)
        policy.use(TorchForm(DEVICE))
        policy.log_std.copy_(torch.randn(ACTIONS, generator=generator))
        policy.normaliser.update(torch.randn((4, SIZE), generator=generator).to(DEVICE))
        made.append(policy)
    return made


def observations() -> torch.Tensor:
    return torch.randn((K * WORLDS, SIZE), generator=torch.Generator().manual_seed(9)).to(DEVICE)


def rows(k: int) -> slice:
    return slice(k * WORLDS, (k + 1) * WORLDS)


def test_policies_act_in_their_own_worlds() -> None:
    alone, obs = policies(), observations()
    together = Policies(policies(), WORLDS)
    for k, policy in enumerate(alone):
        torch.testing.assert_close(together.mean(obs)[rows(k)], policy.mean(obs[rows(k)]))
        assert (together.log_std[rows(k)] == policy.log_std).all()


@pytest.mark.parametrize("design", [PUBLISHED, Design(plain=2)], ids=["all", "all but two"])
def test_statistics_grow_for_each_alone(design: Design) -> None:
    alone, obs = policies(design), observations()
    members = policies(design)
    together = Policies(members, WORLDS)
    for _ in range(2):
        together.normaliser.update(obs)
        for k, policy in enumerate(alone):
            policy.normaliser.update(obs[rows(k)])
    for k, (policy, member) in enumerate(zip(alone, members, strict=True)):
        torch.testing.assert_close(together.normaliser(obs)[rows(k)], policy.normaliser(obs[rows(k)]))
        ours, theirs = member.normaliser.state_dict(), policy.normaliser.state_dict()
        assert {name: pytest.approx(values, rel=1e-12) for name, values in theirs.items()} == ours


def test_a_policy_that_changes_acts_otherwise_at_once() -> None:
    members, obs = policies(), observations()
    together = Policies(members, WORLDS)
    before = together.mean(obs).clone()
    members[1].set(torch.zeros(sum(tensor.numel() for tensor in members[1].params), device=DEVICE))
    after = together.mean(obs)
    assert (after[rows(1)] == 0).all()
    assert (after[rows(0)] == before[rows(0)]).all()
    assert (after[rows(2)] == before[rows(2)]).all()
    state = policies()[1].state_dict()
    members[1].load_state_dict(state)
    torch.testing.assert_close(together.mean(obs), before)


def test_statistics_that_stand_still_do_so_beside_those_of_a_learner_that_has_failed() -> None:
    members = policies()
    together = Policies(members, WORLDS)
    together.normaliser.update(observations().double())
    for policy in members[1:]:
        policy.normaliser.learns = False
    before = members[1].normaliser.state_dict()
    together.normaliser.update(observations().double() + 1)
    assert (members[1].normaliser.state_dict()["mean"] == before["mean"]).all()
