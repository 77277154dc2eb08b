"""Greedy tokens of transformers, and the rule by which ours may differ from them (invariant 5)."""

from dataclasses import dataclass
from typing import Any

import torch
from tests.parity.quantized_reference import QuantizedModel
from transformers import PreTrainedModel

TIE_MARGIN = 1e-5
MAX_TIES_PER_TOKEN = 1e-3


@dataclass(slots=True)
class TieCount:
    """Tokens compared so far, and how many of them were the other side of a tie."""

    tokens: int = 0
    ties: int = 0

    def check(self) -> None:
        """Print the count; more than one tie in a thousand tokens is no coincidence."""
        print(f"{self.ties} ties in {self.tokens} tokens")
        assert self.ties <= self.tokens * MAX_TIES_PER_TOKEN


class Reference:
    """A transformers model that continues prompts greedily, past the end-of-sequence token."""

    def __init__(self, model: PreTrainedModel | QuantizedModel) -> None:
        # a generation mixin of transformers' that its type does not show
        self.model: Any = model
        self._known: dict[tuple[tuple[int, ...], int], list[int]] = {}

    def continuation(self, prompt: tuple[int, ...], count: int) -> list[int]:
        """The next `count` tokens of `generate`."""
        if (prompt, count) not in self._known:
            ids = torch.tensor([prompt])
            with torch.no_grad():
                made = self.model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=count,
                    min_new_tokens=count,
                    do_sample=False,
                    eos_token_id=None,
                    pad_token_id=0,
                )
            self._known[prompt, count] = made[0, len(prompt) :].tolist()
        return self._known[prompt, count]

    def logits(self, tokens: tuple[int, ...]) -> torch.Tensor:
        """Of the token after `tokens`: [vocab] float32."""
        with torch.no_grad():
            return self.model(torch.tensor([tokens])).logits[0, -1].float()


def assert_greedy_parity(
    reference: Reference,
    prompt: tuple[int, ...],
    token_ids: list[int],
    ties: TieCount,
    *,
    margin: float = TIE_MARGIN,
) -> None:
    """Tokens equal the reference's, but where its best two logits are closer than `margin`.

    After a tie the reference goes on from the token that we took.

    Raises:
        AssertionError: another token, with the margin.
    """
    known = prompt
    left = token_ids
    while left:
        expected = reference.continuation(known, len(left))
        same = next((i for i, t in enumerate(left) if t != expected[i]), len(left))
        ties.tokens += same
        if same == len(left):
            return
        known += tuple(left[:same])
        _assert_tie(reference.logits(known), left[same], len(known) - len(prompt), margin)
        ties.tokens += 1
        ties.ties += 1
        known += (left[same],)
        left = left[same + 1 :]


def _assert_tie(logits: torch.Tensor, token: int, place: int, margin: float) -> None:
    best = logits.topk(2)
    apart = float(best.values[0] - best.values[1])
    is_tie = apart < margin and token in best.indices.tolist()
    assert is_tie, (
        f"output token {place} is {token}; the reference takes {int(best.indices[0])} "
        f"by a margin of {apart:.2e}"
    )
