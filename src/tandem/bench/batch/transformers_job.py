"""The same job by transformers' `generate`, in batches of requests that take about as long.

Its best on a CPU: inference mode, SDPA, its default growing cache. Requests are ordered by their
number of new tokens, so that hardly any row is computed past its end, and padded on the left to the
longest prompt of their batch.
"""

import time
from collections.abc import Sequence
from typing import Any, cast

import torch
from transformers import GenerationConfig, PreTrainedTokenizerBase

from tandem.bench.batch.work import Answered, Asked


class TransformersJob:
    """Runs jobs on a loaded model.

    Args:
        rows: of a batch.
    """

    def __init__(self, model: Any, tokenizer: PreTrainedTokenizerBase, rows: int) -> None:
        self._model, self._tokenizer, self._rows = model, tokenizer, rows

    def run(self, asked: Sequence[Asked]) -> Answered:
        """All requests; tokens to text counts."""
        begin = time.perf_counter()
        order = sorted(
            range(len(asked)), key=lambda i: (-asked[i].new_tokens, len(asked[i].prompt))
        )
        texts = [""] * len(asked)
        for first in range(0, len(order), self._rows):
            places = order[first : first + self._rows]
            made = self._generate([asked[i] for i in places])
            for i, ids in zip(places, made, strict=True):
                texts[i] = cast("str", self._tokenizer.decode(ids, skip_special_tokens=True))
        wall_s = time.perf_counter() - begin
        return Answered(tuple(texts), sum(each.new_tokens for each in asked), wall_s)

    def _generate(self, asked: Sequence[Asked]) -> list[list[int]]:
        longest = max(len(each.prompt) for each in asked)
        ids = torch.zeros(len(asked), longest, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, each in enumerate(asked):
            ids[row, longest - len(each.prompt) :] = torch.tensor(each.prompt)
            mask[row, longest - len(each.prompt) :] = 1
        settings = GenerationConfig(
            max_new_tokens=max(each.new_tokens for each in asked), do_sample=False, pad_token_id=0
        )
        with torch.inference_mode():
            output = self._model.generate(ids, attention_mask=mask, generation_config=settings)
        rows = output[:, longest:].tolist()
        return [row[: each.new_tokens] for row, each in zip(rows, asked, strict=True)]
