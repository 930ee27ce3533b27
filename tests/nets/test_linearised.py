import pytest
import torch

from sbtrpo.nets import linearised
from sbtrpo.nets.linearised import Linearised, LinearisedChunks
from sbtrpo.nets.network import MLP, flatten
from tests.algorithms.samples import make_batch, make_policy

SHAPES = [(5, 2, (7, 6)), (4, 3, (5,)), (3, 1, (4, 4, 4))]  # observations, actions, hidden layers
SIZE = 200


@pytest.mark.parametrize("shape", SHAPES)
def test_pushforward_is_the_derivative_of_the_network(shape: tuple[int, int, tuple[int, ...]]) -> None:
    policy = make_policy(0, *shape)
    obs, network = make_batch(policy).obs, policy.params[1:]
    tangents = [torch.randn_like(tensor) for tensor in network]
    pushed = Linearised(MLP(network), obs).pushforward([tangent[None] for tangent in tangents])
    jvp = torch.autograd.functional.jvp(lambda *params: MLP(list(params))(obs), tuple(network), tuple(tangents))  # type: ignore[no-untyped-call]
    torch.testing.assert_close(pushed[:, 0].T, jvp[1])


@pytest.mark.parametrize("shape", SHAPES)
def test_pullback_is_adjoint_to_pushforward(shape: tuple[int, int, tuple[int, ...]]) -> None:
    policy = make_policy(0, *shape)
    obs, network = make_batch(policy).obs, policy.params[1:]
    linear = Linearised(MLP(network), obs)
    k = 2
    tangents = [torch.randn((k, *tensor.shape), dtype=tensor.dtype) for tensor in network]
    cotangent = torch.randn((linear.output.shape[1], k, len(obs)), dtype=obs.dtype)
    pushed = (linear.pushforward(tangents) * cotangent).sum(dim=(0, 2))
    pulled = linear.pullback(cotangent) * torch.stack([flatten([tensor[i] for tensor in tangents]) for i in range(k)])
    torch.testing.assert_close(pulled.sum(dim=1), pushed)


# ---- chunks --------------------------------------------------------------------------------------------------------


def chunks(monkeypatch: pytest.MonkeyPatch, chunk: int, budget: int = 2**30) -> LinearisedChunks:
    monkeypatch.setattr(linearised, "CHUNK", chunk)
    monkeypatch.setattr(linearised, "BUDGET", budget)
    policy = make_policy()
    return LinearisedChunks(MLP(policy.params[1:]), make_batch(policy, size=SIZE).obs)


@pytest.mark.parametrize(("chunk", "sizes"), [(SIZE, [SIZE]), (1000, [SIZE]), (90, [90, 90, 20]), (100, [100, 100])])
def test_chunks_cover_all_rows_in_order(monkeypatch: pytest.MonkeyPatch, chunk: int, sizes: list[int]) -> None:
    cut = chunks(monkeypatch, chunk)
    assert [len(linear.output) for _, linear in cut] == sizes
    assert [row for rows, _ in cut for row in range(SIZE)[rows]] == list(range(SIZE))
    assert torch.equal(torch.cat([linear.output for _, linear in cut]), cut.output)


def test_what_is_kept_stays_within_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    size = chunks(monkeypatch, 40)._kept[0].size
    assert size == 8 * 40 * ((6 + 8 + 7) + 2 * (7 + 6))  # inputs with a one, and two outputs' signals, in doubles
    for budget, kept in ((0, 0), (size - 1, 0), (size, 1), (3 * size, 3), (10 * size, 5)):
        cut = chunks(monkeypatch, 40, budget)
        first, second = (list(cut) for _ in range(2))
        assert [a is b for (_, a), (_, b) in zip(first, second, strict=True)] == [i < kept for i in range(5)]
