"""Work that is done again and again, recorded where there is a GPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sbtrpo.nets.replayed import TURN, WARM_UP, Replayed, passed_on, side_by_side
from tests.devices import DEVICE


def test_every_row_is_worked_on_once_a_pass() -> None:
    """Also those of the last minibatch, which is smaller, and those that come after the recording."""
    rows, size = 7 * (WARM_UP + 3) + 2, 7
    seen = torch.zeros(rows, device=DEVICE)

    def work(numbers: Tensor) -> None:
        seen.index_add_(0, numbers, torch.ones(len(numbers), device=DEVICE))

    replayed = Replayed(work, size, DEVICE)
    for count in (1, 2, 3):
        replayed.over(torch.randperm(rows).to(DEVICE))
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
        replayed.over(torch.tensor([0, 1, 2], device=DEVICE))
    count = WARM_UP + 4
    assert float(steps) == count
    assert total.tolist() == [k * count * (count + 1) / 2 for k in range(3)]


def test_side_by_side_each_keeps_its_own_order() -> None:
    """Passes of unlike lengths, the longer one over several turns; what one writes, the other does not."""
    lengths, size = (5, 5 * (2 * TURN + 1) + 3), 5
    heaps = [torch.zeros((), dtype=torch.float64, device=DEVICE) for _ in lengths]

    def work(heap: Tensor) -> Callable[[Tensor], None]:
        return lambda rows: heap.mul_(1.01).add_((rows * torch.arange(1, len(rows) + 1, device=DEVICE)).sum())

    orders = [torch.randperm(length, generator=torch.Generator().manual_seed(length)) for length in lengths]
    replayed = [Replayed(work(heap), size, DEVICE) for heap in heaps]
    for _ in range(3):
        side_by_side([(one, order.to(DEVICE)) for one, order in zip(replayed, orders, strict=True)])
    for heap, order in zip(heaps, orders, strict=True):
        expected = 0.0
        for _ in range(3):
            for rows in order.split(size):
                expected = expected * 1.01 + float((rows * torch.arange(1, len(rows) + 1)).sum())
        assert float(heap) == pytest.approx(expected, rel=1e-12)


def test_what_goes_wrong_in_one_pass_stays_there() -> None:
    seen = torch.zeros(20, device=DEVICE)

    def work(rows: Tensor) -> None:
        seen.index_add_(0, rows, torch.ones(len(rows), device=DEVICE))

    def fail(rows: Tensor) -> None:
        raise ArithmeticError(f"at {len(rows)} rows")

    order = torch.randperm(20).to(DEVICE)
    found = side_by_side([(Replayed(work, 2, DEVICE), order), (Replayed(fail, 2, DEVICE), order)])
    assert found[0] is None
    assert isinstance(found[1], ArithmeticError)
    assert seen.tolist() == [1.0] * 20
    with pytest.raises(ArithmeticError, match="at 2 rows"):
        Replayed(fail, 2, DEVICE).over(order)


def test_a_pass_goes_to_who_asked_for_it() -> None:
    """And nothing is worked on before that one does it."""
    seen, asked = list[int](), list[Tensor]()
    replayed = Replayed(lambda rows: seen.append(len(rows)), 2, "cpu")
    token = passed_on.set(lambda _, order: asked.append(order))
    try:
        replayed.over(torch.arange(5))
    finally:
        passed_on.reset(token)
    assert (len(asked), seen) == (1, [])
    replayed.over(asked[0])
    assert seen == [2, 2, 1]
