"""What a model says after every token of some texts: read whole, all at once, from first to last.

No scheduler, no second tier and no step before another: one program over whole texts, whose layers
run one after the other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandem.bench.replay.small_model import machine_of
from tandem.bench.replay.texts import Texts
from tandem.models.model import Model
from tandem.plan.binding import (
    CounterNumbers,
    LaneBinding,
    LongArray,
    SamplingRows,
    TierAppend,
    TierAttention,
)
from tandem.plan.events import Failed, TokensSampled
from tandem.plan.program import LaneShape, LaneSlot, StepProgram
from tandem.plan.templates import sampling_template, sweep_template
from tandem.runtime.inline import InlineExecutor
from tandem.spec.tier import Tier

_BLOCK_SIZE = 16
_TOKENS = 16_384
"""Of a program, about: with few more, the rest of a step takes most of the time."""


@dataclass(frozen=True, slots=True)
class Expected:
    """For each token that a text was given, what the model says in its place.

    Attributes:
        ids: int64 [n]; the likeliest token. logprobs: float32 [n], its own.
        margins: float32 [n]; by how much the next best is less likely, in log-probabilities.
    """

    ids: LongArray
    logprobs: NDArray[np.float32]
    margins: NDArray[np.float32]


def expected(model: Model, texts: Texts) -> Expected:
    """In the order of the texts' tokens.

    Args:
        model: that has all its layers in one place.
    """
    batches = list(_batches(texts))
    blocks = max(sum(map(_num_blocks, tokens)) for tokens, _ in batches)
    rows = max(sum(len(t) - prompt for t, prompt in zip(*each, strict=True)) for each in batches)
    machine = machine_of(model, _BLOCK_SIZE, blocks, 0, rows)
    executor = InlineExecutor(machine)
    found: list[TokensSampled] = []
    try:
        for number, (tokens, prompts) in enumerate(batches):
            for program in _programs(2 * number + 1, model.spec.num_layers, tokens, prompts):
                executor.submit(program)
            for event in executor.poll(wait=True):
                assert not isinstance(event, Failed), event.message
                if isinstance(event, TokensSampled):
                    found.append(event)
    finally:
        executor.close()
        machine.free()
    best = np.concatenate([_top(event) for event in found])
    ids = np.concatenate([event.token_ids for event in found])
    return Expected(ids, best[:, 0], best[:, 0] - best[:, 1])


def _top(event: TokensSampled) -> NDArray[np.float32]:
    """[n, 2]"""
    assert event.valid.all(), "a small model gives usable logits"
    assert event.top_logprobs is not None
    return event.top_logprobs


def _batches(texts: Texts) -> Iterator[tuple[list[LongArray], list[int]]]:
    """Texts without their last tokens, after which nobody asked, and their prompts' lengths less
    one: from there on it is asked.
    """
    tokens: list[LongArray] = []
    prompts: list[int] = []
    for text, prompt in zip(texts.tokens, texts.prompts, strict=True):
        tokens.append(text[:-1])
        prompts.append(prompt - 1)
        if sum(map(len, tokens)) >= _TOKENS:
            yield tokens, prompts
            tokens, prompts = [], []
    if tokens:
        yield tokens, prompts


def _num_blocks(tokens: LongArray) -> int:
    return -(-len(tokens) // _BLOCK_SIZE)


def _programs(
    step: int, num_layers: int, tokens: Sequence[LongArray], asked: Sequence[int]
) -> tuple[StepProgram, StepProgram]:
    """A sweep over whole texts, and what is chosen after each of their tokens from `asked` on."""
    binding = _binding(tokens, asked)
    lane = LaneShape()
    sweep = StepProgram(step, sweep_template(num_layers, (lane,)), (LaneSlot(binding),))
    sampling = _likeliest(len(binding.logits_index))
    chosen = StepProgram(
        step + 1,
        sampling_template(1),
        sampling=(sampling,),
        sampling_lanes=(0,),
        forward_step=step,
    )
    return sweep, chosen


def _binding(tokens: Sequence[LongArray], asked: Sequence[int]) -> LaneBinding:
    """Longer than one token each; text r lies in blocks of its own, one after the other."""
    lengths = np.array([len(text) for text in tokens], dtype=np.int64)
    starts = np.zeros(len(tokens) + 1, dtype=np.int32)
    lengths.cumsum(out=starts[1:])
    positions = np.concatenate([np.arange(n, dtype=np.int32) for n in lengths])
    counts = -(-lengths // _BLOCK_SIZE)
    firsts = counts.cumsum() - counts
    table = firsts[:, None] + np.arange(counts.max())
    of_token = np.arange(len(tokens)).repeat(lengths)
    slots = firsts[of_token] * _BLOCK_SIZE + positions
    attention = TierAttention(
        None, starts, 0, positions, np.minimum(table, counts.sum() - 1).astype(np.int32), None
    )
    wanted = [start + np.arange(a, n) for start, a, n in zip(starts, asked, lengths, strict=False)]
    return LaneBinding(
        rows=np.arange(len(tokens), dtype=np.int32),
        token_ids=np.concatenate(tokens),
        token_rows=of_token.astype(np.int64),
        positions=positions,
        attention={Tier.DEVICE: attention},
        append={Tier.DEVICE: TierAppend(None, slots)},
        logits_index=np.concatenate(wanted).astype(np.int64),
    )


def _likeliest(count: int) -> SamplingRows:
    """Greedy, with the next best beside."""
    zeros, no_pairs = np.zeros(count, dtype=np.float32), np.zeros((0, 2), dtype=np.int64)
    return SamplingRows(
        logits_index=np.arange(count, dtype=np.int64),
        rows=np.arange(count, dtype=np.int32),
        greedy=True,
        temperature=zeros,
        top_p=np.ones(count, dtype=np.float32),
        min_p=zeros,
        top_k=np.zeros(count, dtype=np.int32),
        numbers=CounterNumbers(np.zeros(count, np.uint64), np.zeros(count, np.int64)),
        banned=no_pairs,
        bias=no_pairs,
        bias_values=np.zeros(0, dtype=np.float32),
        penalties=None,
        logprobs=2,
    )
