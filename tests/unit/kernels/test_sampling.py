from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.kernels.sampling_case import make_penalties, make_rows, take_rows

from tandem.kernels.draw import GROUP
from tandem.kernels.sampling import Likeliest, chosen_by_likeliest, sample
from tandem.memory.workspace import SORTED_BYTES
from tandem.spec.random import uniform


def test_greedy_takes_the_lowest_of_equal_logits() -> None:
    logits = torch.full((2, 5000), -3.0)
    logits[0, [70, 4000, 12]] = 2.0
    logits[1, 4999] = -1.0
    rows = make_rows(2, greedy=True, temperature=0)
    assert sample(logits, rows).token_ids.tolist() == [12, 4999]


def test_the_likeliest_found_beforehand_are_what_greedy_rows_sample() -> None:
    logits = torch.randn(6, 500, generator=torch.Generator().manual_seed(3))
    logits[1, [70, 400, 12]] = 9.0  # the lowest of equal ones
    logits[2, 5], logits[3, 7], logits[4] = torch.nan, torch.inf, -torch.inf
    found = Likeliest(torch.full((8,), -1), torch.ones(8, dtype=torch.bool)).first(6)
    found.find(logits)
    for index in (range(6), [5, 0, 3, 1]):
        rows = make_rows(len(index), greedy=True, temperature=0, logits_index=list(index))
        assert chosen_by_likeliest(rows)
        ours, expected = found.of(rows), sample(logits, rows)
        assert torch.equal(ours.valid, expected.valid)
        assert torch.equal(ours.token_ids[ours.valid], expected.token_ids[expected.valid])
        assert ours.token_ids.data_ptr() != found.token_ids.data_ptr()  # written by the next step
    assert expected.valid.tolist() == [True, True, False, True]


@pytest.mark.parametrize(
    "asked",
    [
        {"temperature": 0.7},
        {"greedy": True, "banned": [[0, 3]]},
        {"greedy": True, "bias": [[1, 2]], "bias_values": [5.0]},
        {"greedy": True, "logprobs": 0},
        {"greedy": True, "penalties": make_penalties(2, prompt=[(0, 5)], repetition=1.1)},
    ],
)
def test_what_more_than_the_largest_logit_decides_is_not_taken_from_it(
    asked: dict[str, Any],
) -> None:
    assert not chosen_by_likeliest(make_rows(2, **asked))


def test_rows_read_their_logits_and_leave_them_unchanged() -> None:
    logits = torch.eye(4)
    before = logits.clone()
    rows = make_rows(
        2, temperature=0, logits_index=[3, 1], banned=[[0, 3]], bias=[[1, 2]], bias_values=[5.0]
    )
    assert sample(logits, rows).token_ids.tolist() == [0, 2]
    assert torch.equal(logits, before)


def test_draw_follows_the_cumulative_distribution_in_token_order() -> None:
    logits = torch.tensor([[0.5, 0.25, 0.125, 0.125]]).log().expand(6, 4)
    rows = make_rows(6, uniform=[0.0, 0.499, 0.501, 0.7499, 0.876, 1 - 2.0**-53])
    assert sample(logits, rows).token_ids.tolist() == [0, 0, 1, 1, 3, 3]


def test_temperature_sharpens_and_flattens() -> None:
    logits = torch.tensor([[1.0, 0.0]]).expand(3, 2)
    # P(token 0) = 1 / (1 + exp(-1 / T)): 0.731, 0.999955, 0.525
    rows = make_rows(3, temperature=[1.0, 0.1, 10.0], uniform=[0.74, 0.74, 0.53])
    assert sample(logits, rows).token_ids.tolist() == [1, 0, 1]


def test_tiny_temperature_is_greedy_and_finite() -> None:
    logits = torch.tensor([[1e4, 9e3, -1e4]])
    assert sample(logits, make_rows(1, temperature=1e-30, uniform=1 - 1e-9)).token_ids.item() == 0


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ({"top_k": 1}, [1, 2]),  # as likely as the last one kept: kept too
        ({"top_k": 3}, [1, 2, 4]),
        ({"top_k": 100}, [0, 1, 2, 3, 4]),
        ({"top_p": 0.01}, [1, 2]),
        ({"top_p": 0.66}, [1, 2]),
        ({"top_p": 0.68}, [1, 2, 4]),
        ({"top_p": 0.88}, [0, 1, 2, 3, 4]),
        ({"min_p": 0.19}, [0, 1, 2, 3, 4]),
        ({"min_p": 0.21}, [1, 2, 4]),
        ({"min_p": 1.0}, [1, 2]),
        ({"top_p": 0.7}, [1, 2, 4]),
        ({"top_p": 0.7, "top_k": 3}, [1, 2]),  # 0.7 of the three's mass, not of the whole
        ({"top_p": 0.7, "min_p": 0.7}, [1, 2]),
    ],
)
def test_filters_keep_exactly(filters: dict[str, float], kept: list[int]) -> None:
    weights = torch.tensor([2.0, 10.0, 10.0, 2.0, 6.0])
    grid = (np.arange(400) + 0.5) / 400
    drawn = sample(weights.log().expand(400, 5), make_rows(400, uniform=grid, **filters))
    assert drawn.token_ids.unique().tolist() == kept


def test_draws_are_distributed_as_the_probabilities() -> None:
    random = np.random.default_rng(0)
    logits = random.normal(size=12).astype(np.float32) * 2
    numbers = uniform(np.full(20_000, 11, np.uint64), np.arange(20_000))
    rows = make_rows(20_000, uniform=numbers)
    drawn = sample(torch.from_numpy(logits).expand(20_000, 12), rows).token_ids.numpy()
    expected = 20_000 * np.exp(logits) / np.exp(logits).sum()
    counts = np.bincount(drawn, minlength=12)
    assert ((counts - expected) ** 2 / expected).sum() < 31  # 11 degrees of freedom: p = 0.001


def test_draws_from_several_groups_are_distributed_as_the_probabilities() -> None:
    random = np.random.default_rng(1)
    vocab = 2 * GROUP + 7
    logits = random.normal(size=vocab).astype(np.float32)
    numbers = uniform(np.full(40_000, 12, np.uint64), np.arange(40_000))
    rows = make_rows(40_000, uniform=numbers)
    drawn = sample(torch.from_numpy(logits).expand(40_000, vocab), rows).token_ids.numpy()
    expected = 40_000 * np.exp(logits) / np.exp(logits).sum()
    square = ((np.bincount(drawn, minlength=vocab) - expected) ** 2 / expected).sum()
    assert abs(square - (vocab - 1)) < 4 * (2 * (vocab - 1)) ** 0.5  # deviations of a chi-square


def test_the_last_bits_of_logits_hardly_ever_change_a_draw() -> None:
    n, vocab = 4_000, 16_384
    random = np.random.default_rng(2)
    logits = random.normal(size=vocab).astype(np.float32) * 3
    noise = random.normal(size=vocab).astype(np.float32) * 2e-5
    rows = make_rows(n, uniform=random.random((n, 2)))
    one, other = (
        sample(torch.from_numpy(row).expand(n, vocab), rows).token_ids
        for row in (logits, logits + noise)
    )
    # In one draw over all ids it would be some dozens.
    assert int((one != other).sum()) <= 8


def test_banned_tokens_are_never_drawn() -> None:
    logits = torch.tensor([[5.0, 4.0, 0.0]]).expand(50, 3)
    banned = [[row, token] for row in range(0, 50, 2) for token in (0, 1)]
    rows = make_rows(50, banned=banned, uniform=(np.arange(50) + 0.5) / 50)
    drawn = sample(logits, rows).token_ids
    assert drawn[::2].tolist() == [2] * 25
    assert 0 in drawn[1::2].tolist()


def test_bias_is_added_and_accumulates() -> None:
    logits = torch.zeros(2, 4)
    pairs = [[0, 3], [1, 2], [1, 2], [1, 0]]
    rows = make_rows(2, temperature=0, bias=pairs, bias_values=[1.0, 2.0, 2.0, 3.0])
    assert sample(logits, rows).token_ids.tolist() == [3, 2]


def test_penalties_lower_what_was_seen() -> None:
    # Row 0: token 0 is in prompt and output, and divided once; tokens 1, 2 are in the prompt.
    penalties = make_penalties(
        2,
        prompt=[(0, 0), (0, 1), (0, 2)],
        output=[(0, 0, 3), (1, 2, 1)],
        repetition=2.0,
        presence=0.5,
        frequency=0.25,
    )
    # 4/2 - 0.25*3 - 0.5 = 0.75; 1.6/2 = 0.8; -1*2 = -2; 0.79
    first = torch.tensor([4.0, 1.6, -1.0, 0.79])
    second = torch.tensor([1.0, 0.0, 3.5, 0.0])  # token 2: 3.5/2 - 0.25 - 0.5 = 1, a tie
    rows = make_rows(2, temperature=0, penalties=penalties)
    assert sample(torch.stack((first, second)), rows).token_ids.tolist() == [1, 0]


def test_repetition_penalty_lowers_negative_logits() -> None:
    penalties = make_penalties(1, prompt=[(0, 1)], repetition=2.0)
    logits = torch.tensor([[-1.5, -1.0]])
    rows = make_rows(1, temperature=0, penalties=penalties)
    assert sample(logits, rows).token_ids.tolist() == [0]


def test_logprobs_are_of_the_logits_before_any_change() -> None:
    logits = torch.tensor([[1.0, 3.0, 2.0, 2.0, -torch.inf]])
    rows = make_rows(
        1, logprobs=3, temperature=0.01, top_k=1, banned=[[0, 1]], bias=[[0, 0]], bias_values=[9.0]
    )
    result = sample(logits, rows)
    expected = logits.double().log_softmax(-1)[0].float()
    assert result.token_ids.tolist() == [0]
    assert result.logprobs is not None
    assert result.top_logprobs is not None
    assert result.top_token_ids is not None
    torch.testing.assert_close(result.logprobs, expected[[0]], rtol=0, atol=1e-6)
    assert result.top_token_ids.tolist() == [[1, 2, 3]]
    torch.testing.assert_close(result.top_logprobs[0], expected[[1, 2, 3]], rtol=0, atol=1e-6)


def test_only_what_was_asked_for_is_returned() -> None:
    logits = torch.zeros(1, 3)
    without, own = sample(logits, make_rows(1)), sample(logits, make_rows(1, logprobs=0))
    assert without.logprobs is None
    assert own.logprobs is not None
    assert own.top_token_ids is None
    assert own.top_logprobs is None
    more = sample(logits, make_rows(1, logprobs=20))
    assert more.top_token_ids is not None
    assert more.top_token_ids.tolist() == [[0, 1, 2]]


def test_equal_alternatives_come_by_id() -> None:
    logits = torch.tensor([[0.0, -0.0, 5.0, 0.0, -1.0, 5.0]])
    top = sample(logits, make_rows(1, logprobs=5)).top_token_ids
    assert top is not None
    assert top.tolist() == [[2, 5, 0, 1, 3]]


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_logits_without_meaning_are_marked_and_stay_in_the_vocabulary(bad: float) -> None:
    logits = torch.zeros(3, 6)
    logits[1, 4] = bad
    for rows in (make_rows(3), make_rows(3, greedy=True, temperature=0), make_rows(3, top_p=0.5)):
        result = sample(logits, rows)
        assert result.valid.tolist() == [True, False, True]
        assert all(0 <= t < 6 for t in result.token_ids.tolist())


def test_narrow_logits_are_sampled_in_fp32() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(0)).bfloat16()
    rows = make_rows(3, top_p=0.9, uniform=[0.1, 0.5, 0.9], logprobs=2)
    narrow, wide = sample(logits, rows), sample(logits.float(), rows)
    assert torch.equal(narrow.token_ids, wide.token_ids)
    assert narrow.logprobs is not None
    assert narrow.logprobs.dtype == torch.float32


def test_no_rows_give_no_tokens() -> None:
    result = sample(torch.zeros(3, 4), make_rows(0, logprobs=2))
    assert result.token_ids.tolist() == []
    assert result.logprobs is not None
    assert result.logprobs.tolist() == []


def test_a_row_is_the_same_alone_and_in_any_batch() -> None:
    n, vocab = 24, 40_003  # several chunks, rows at odd offsets
    random = np.random.default_rng(5)
    logits = torch.from_numpy(random.normal(size=(n, vocab)).astype(np.float32) * 3)
    rows = make_rows(
        n,
        temperature=random.choice([0.0, 0.7, 1.0, 1.5], n),
        top_k=random.choice([0, 1, 50], n),
        top_p=random.choice([0.5, 0.95, 1.0], n),
        min_p=random.choice([0.0, 0.05], n),
        uniform=random.random(n),
        logprobs=4,
    )
    whole = sample(logits, rows)
    for chosen in ([7], [23], [3, 4, 5], list(range(n))[::-1]):
        part = sample(logits, take_rows(rows, chosen))
        for name in ("token_ids", "logprobs", "top_token_ids", "top_logprobs"):
            assert torch.equal(getattr(part, name), getattr(whole, name)[chosen]), name


@pytest.mark.parametrize("at_once", [1, 3, 24])
def test_how_many_rows_are_sorted_at_once_changes_no_token(
    monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    n, vocab = 24, 3001
    random = np.random.default_rng(7)
    logits = torch.from_numpy(random.normal(size=(n, vocab)).astype(np.float32) * 3)
    rows = make_rows(
        n,
        top_k=random.choice([0, 1, 50], n),
        top_p=random.choice([0.5, 0.95, 1.0], n),
        uniform=random.random(n),
    )
    whole = sample(logits, rows).token_ids
    sorted_rows: list[int] = []
    topk = torch.topk

    def counted(values: torch.Tensor, *args: Any, **named: Any) -> Any:
        sorted_rows.append(len(values))
        return topk(values, *args, **named)

    monkeypatch.setitem(SORTED_BYTES, "cpu", at_once * vocab * 8)
    monkeypatch.setattr(torch, "topk", counted)
    assert torch.equal(sample(logits, rows).token_ids, whole)
    assert max(sorted_rows) == at_once
