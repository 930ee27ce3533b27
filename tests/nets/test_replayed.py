"""Work that is done again and again, recorded where there is a GPU."""

from __future__ import annotations

import torch
from torch import Tensor

from sbtrpo.nets.replayed import WARM_UP, Replayed
from tests.devices import DEVICE


def test_every_row_is_worked_on_once_a_pass() -> None:
    """Also those of the last minibatch, which is smaller, and those that come after the recording."""
    rows, size = 7 * (WARM_UP + 3) + 2, 7
    seen = torch.zeros(rows, device=DEVICE)

    def work(numbers: Tensor) -> None:
        seen.index_add_(0, numbers, torch.ones(len(numbers), device=DEVICE))

    replayed = Replayed(work, size, DEVICE)
    for count in (1, 2, 3):
        for numbers in torch.randperm(rows).to(DEVICE).split(size):
            replayed(numbers)
        assert seen.tolist() == [float(count)] * rows


def test_what_the_work_carries_is_carried_on() -> None:
    """As Adam's steps are: each call goes on where the one before has left."""
    steps = torch.zeros((), dtype=torch.float64, device=DEVICE)
    total = torch.zeros(3, device=DEVICE)

    def work(numbers: Tensor) -> None:
        steps.add_(1)
        total.add_(numbers * steps)

    replayed = Replayed(work, 3, DEVICE)
    for _ in range(WARM_UP + 4):
        replayed(torch.tensor([0, 1, 2], device=DEVICE))
    count = WARM_UP + 4
    assert float(steps) == count
    assert total.tolist() == [k * count * (count + 1) / 2 for k in range(3)]
