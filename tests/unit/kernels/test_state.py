import torch

from tandem.kernels.state import apply_sinks, merge_states


def test_merge_weights_by_the_sums_of_exponentials() -> None:
    out_a, out_b = torch.ones(1, 1, 4), torch.full((1, 1, 4), 5.0)
    out, lse = merge_states(out_a, torch.tensor([[3.0]]).log(), out_b, torch.tensor([[1.0]]).log())
    torch.testing.assert_close(out, torch.full((1, 1, 4), 2.0))
    torch.testing.assert_close(lse, torch.tensor([[4.0]]).log())


def test_a_side_without_keys_leaves_the_other_bit_for_bit() -> None:
    random = torch.Generator().manual_seed(0)
    out = torch.randn(3, 2, 8, generator=random)
    lse = torch.randn(3, 2, generator=random) * 50
    nothing, never = torch.full_like(out, 7.0), torch.full_like(lse, -torch.inf)
    for merged in (merge_states(out, lse, nothing, never), merge_states(nothing, never, out, lse)):
        assert torch.equal(merged[0], out)
        assert torch.equal(merged[1], lse)


def test_nothing_and_nothing_is_nothing() -> None:
    out, lse = merge_states(
        torch.zeros(2, 1, 4), torch.full((2, 1), -torch.inf),
        torch.zeros(2, 1, 4), torch.full((2, 1), -torch.inf),
    )  # fmt: skip
    assert torch.equal(out, torch.zeros(2, 1, 4))
    assert torch.all(lse == -torch.inf)


def test_far_apart_sums_neither_overflow_nor_vanish() -> None:
    out_a, out_b = torch.ones(1, 1, 2), torch.full((1, 1, 2), -1.0)
    out, lse = merge_states(out_a, torch.tensor([[3000.0]]), out_b, torch.tensor([[-3000.0]]))
    assert torch.equal(out, out_a)
    assert torch.equal(lse, torch.tensor([[3000.0]]))


def test_a_sink_takes_its_share_of_the_weights_and_has_no_value() -> None:
    scores = torch.tensor([[0.3, -1.0, 2.0], [1.0, 0.0, -2.0]])
    values, sinks = torch.randn(2, 3, 4), torch.tensor([1.5, -torch.inf])
    out = torch.einsum("hk,hkd->hd", scores.softmax(-1), values)
    shared, lse = apply_sinks(out, scores.logsumexp(-1), sinks)
    joined = torch.cat((scores, sinks[:, None]), 1)
    expected = torch.einsum("hk,hkd->hd", joined.softmax(-1)[:, :3], values)
    torch.testing.assert_close(shared, expected)
    torch.testing.assert_close(lse, joined.logsumexp(-1))


def test_a_sink_counts_once_however_many_parts_there_are() -> None:
    out_a, out_b = torch.randn(2, 5, 3, 4)
    lse_a, lse_b = torch.randn(2, 5, 3)
    sinks = torch.randn(3)
    after = apply_sinks(*merge_states(out_a, lse_a, out_b, lse_b), sinks)
    before = merge_states(*apply_sinks(out_a, lse_a, sinks), out_b, lse_b)
    torch.testing.assert_close(after, before)


def test_a_token_without_keys_has_only_its_sink() -> None:
    out, lse = apply_sinks(torch.zeros(1, 2, 4), torch.full((1, 2), -torch.inf), torch.ones(2))
    assert torch.equal(out, torch.zeros(1, 2, 4))
    assert torch.equal(lse, torch.ones(1, 2))
