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
        self._continued: dict[tuple[tuple[int, ...], int], list[int]] = {}
        self._passed: dict[tuple[tuple[int, ...], tuple[int, ...]], torch.Tensor] = {}

    def continuation(self, prompt: tuple[int, ...], count: int) -> list[int]:
        """The next `count` tokens of `generate`."""
        if (prompt, count) not in self._continued:
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
            self._continued[prompt, count] = made[0, len(prompt) :].tolist()
        return self._continued[prompt, count]

    def logits(self, prompt: tuple[int, ...], taken: tuple[int, ...]) -> torch.Tensor:
        """What each token was taken by, from all before it: [tokens, vocab] float32."""
        if (prompt, taken) not in self._passed:
            self._passed[prompt, taken] = self._pass(prompt, taken)
        return self._passed[prompt, taken]

    def _pass(self, prompt: tuple[int, ...], taken: tuple[int, ...]) -> torch.Tensor:
        """One forward pass over all, of which `generate` would take one for each token."""
        with torch.no_grad():
            made = self.model(torch.tensor([prompt + taken[:-1]])).logits
        return made[0, len(prompt) - 1 :].float()


def assert_greedy_parity(
    reference: Reference,
    prompt: tuple[int, ...],
    token_ids: list[int],
    ties: TieCount,
    *,
    margin: float = TIE_MARGIN,
) -> None:
    """Each token is the reference's best after all before it, but where its best two logits are
    closer than `margin`: all tokens are greedy decoding's, then.

    Raises:
        AssertionError: another token, with the margin.
    """
    if not token_ids:
        return
    logits = reference.logits(prompt, tuple(token_ids))
    best = logits.argmax(dim=-1).tolist()
    ties.tokens += len(token_ids)
    for place, (token, expected) in enumerate(zip(token_ids, best, strict=True)):
        if token != expected:
            _assert_tie(logits[place], token, place, margin)
            ties.ties += 1


def _assert_tie(logits: torch.Tensor, token: int, place: int, margin: float) -> None:
    best = logits.topk(2)
    apart = float(best.values[0] - best.values[1])
    is_tie = apart < margin and token in best.indices.tolist()
    assert is_tie, (
        f"output token {place} is {token}; the reference takes {int(best.indices[0])} "
        f"by a margin of {apart:.2e}"
    )
