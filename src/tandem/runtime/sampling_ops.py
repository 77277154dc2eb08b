"""Sampling operations: choose tokens, and bring them to the host."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from tandem.kernels.sampling import SampledTokens, chosen_by_likeliest, sample
from tandem.plan.binding import SamplingRows
from tandem.plan.events import TokensSampled
from tandem.plan.template_builder import LOGITS, SAMPLED
from tandem.runtime.buffers import BufferSpace, Place
from tandem.runtime.graph_logits import GraphLogits
from tandem.runtime.program_context import ProgramContext
from tandem.runtime.running import Running

_MAX_LANES = 1 << 16


class SamplingOps:
    """The SAMPLE operation and the copy that follows it.

    Args:
        slots: int64 [rows] on the accelerator: the last sampled id of each row (contract 6).
        upload: brings a host tensor to the accelerator on the current queue, without waiting.
    """

    def __init__(
        self,
        buffers: BufferSpace,
        slots: torch.Tensor,
        upload: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        self._buffers = buffers
        self._slots = slots
        self._upload = upload
        self._fetched: dict[tuple[int, int], _Fetched] = {}

    def take_event(self, step: int, lane: int) -> TokensSampled | None:
        """What `fetch_tokens` brought for a lane, once that operation has ended; None if its guard
        failed.
        """
        fetched = self._fetched.pop((step, lane), None)
        return None if fetched is None else _to_event(fetched.there, step, lane)

    def sample(self, running: Running) -> None:
        """Choose a token for each row whose lane took part, and note it in the slot table."""
        context = running.context
        forward = context.sampled
        for index in running.op.lanes:
            if not forward.guards.get(_forward_lane(context, index), True):
                continue
            rows = context.program.sampling[index]
            lane = forward.lanes[_forward_lane(context, index)]
            chosen = _chosen(self._buffers.get((LOGITS, lane.key), running.op.queue), rows)
            rows_index = self._upload(torch.from_numpy(rows.rows.astype(np.int64)))
            self._slots.index_copy_(0, rows_index, chosen.token_ids)
            self._buffers.put(
                (SAMPLED, _local(context, index)),
                Place.DEVICE,
                _Sampled(chosen),
                running.op.queue,
            )

    def fetch_tokens(self, running: Running) -> None:
        """Bring what `sample` chose to the host; like every copy down, nothing waits for it here:
        the queue's thread, blocked until a step's tokens are there, would not launch the next's.
        """
        context = running.context
        for index in running.op.lanes:
            key = (SAMPLED, _local(context, index))
            if not self._buffers.contains(key):
                continue
            held = self._buffers.get(key, running.op.queue)
            assert isinstance(held, _Sampled)
            here = held.tokens
            self._fetched[(context.program.step_id, index)] = _Fetched(here, _to_host(here))
            self._buffers.drop(key[1])


def _chosen(logits: object, rows: SamplingRows) -> SampledTokens:
    """A graph has looked for the likeliest tokens already."""
    if isinstance(logits, GraphLogits):
        if chosen_by_likeliest(rows):
            return logits.likeliest.of(rows)
        logits = logits.logits
    assert isinstance(logits, torch.Tensor)
    return sample(logits, rows)


def _forward_lane(context: ProgramContext, index: int) -> int:
    return context.program.sampling_lanes[index]


def _local(context: ProgramContext, index: int) -> int:
    """A buffer key of this program alone: negative, so that it is no cohort's."""
    assert index < _MAX_LANES
    return -(context.program.step_id * _MAX_LANES + index + 1)


@dataclass(frozen=True, slots=True)
class _Sampled:
    """Sampled ids and log-probabilities on the accelerator."""

    tokens: SampledTokens

    @property
    def size_bytes(self) -> int:
        t = self.tokens
        held = (t.token_ids, t.valid, t.logprobs, t.top_token_ids, t.top_logprobs)
        return sum(tensor.nbytes for tensor in held if tensor is not None)


@dataclass(frozen=True, slots=True)
class _Fetched:
    """Tokens on their way; the accelerator's memory may be given to others when they have come.

    Attributes:
        here: on the accelerator. there: on the host.
    """

    here: SampledTokens
    there: SampledTokens


def _to_host(tokens: SampledTokens) -> SampledTokens:
    """On the current queue, to memory that torch pins."""

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to("cpu", non_blocking=True)

    t = tokens
    return SampledTokens(
        moved(t.token_ids),
        moved(t.valid),
        None if t.logprobs is None else moved(t.logprobs),
        None if t.top_token_ids is None else moved(t.top_token_ids),
        None if t.top_logprobs is None else moved(t.top_logprobs),
    )


def _to_event(t: SampledTokens, step: int, lane: int) -> TokensSampled:
    return TokensSampled(
        step, lane, t.token_ids.numpy(), t.valid.numpy(),
        None if t.logprobs is None else t.logprobs.numpy(),
        None if t.top_token_ids is None else t.top_token_ids.numpy(),
        None if t.top_logprobs is None else t.top_logprobs.numpy(),
    )  # fmt: skip
