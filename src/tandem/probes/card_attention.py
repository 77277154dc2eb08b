"""Attention and appends on an accelerator, by the kernels of an engine's steps."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from tandem.kernels.page_conversion import convert_blocks
from tandem.kernels.pages import PageShape
from tandem.kernels.tier_kernels import TierKernels, accelerator_kernels
from tandem.plan.binding import TierAttention
from tandem.probes.kernel_cases import BLOCK_SIZE, PageProbe, Workload, make_layers
from tandem.probes.kernel_pages import code_pages, code_shape, float_pages, held_dtype, query_dtype
from tandem.probes.probe_device import ProbeDevice
from tandem.probes.recorded_calls import RecordedCalls
from tandem.probes.timing import Sample, timed
from tandem.spec.kv_type import CodeType

Sizes = Sequence[tuple[int, int]]
UNCACHED_BYTES = 256 << 20
"""What calls on an accelerator walk through: its caches hold up to 128 MiB, a host's may hold more
than a small card has memory.
"""
_CALLS = 16  # submitted at once


class CardAttention:
    """One layer's pages of one type."""

    def __init__(self, probed: ProbeDevice, pages: PageProbe) -> None:
        device, heads, kv = probed.device, pages.heads, pages.kv
        self._probed, self._device, self._heads, self._kv = probed, device, heads, kv
        self._memory_bytes = min(pages.memory_bytes, UNCACHED_BYTES)
        self._dtype = query_dtype(kv)
        self._shape = code_shape(heads, kv) if isinstance(kv, CodeType) else heads.pages
        self._kernels = self._of(self._shape)
        if device.type == "cuda":  # what serves there
            from tandem.kernels.open_prompts import with_own_prompts

            self._kernels = with_own_prompts(
                self._kernels, device, heads.scale, 0.0, held_dtype(kv), self._dtype
            )

    def decoding(self, sizes: Sizes) -> Mapping[tuple[int, int], Sample]:
        """By rows, and the context of each."""
        pages = self._pages(max(rows * _blocks(context) for rows, context in sizes))
        return {(rows, context): self._decode(pages, rows, context) for rows, context in sizes}

    def reading_prompts(self, sizes: Sizes) -> Mapping[tuple[int, int], Sample]:
        """By prompts, and the tokens of each."""
        pages = self._pages(max(prompts * _blocks(tokens) for prompts, tokens in sizes))
        return {(prompts, tokens): self._read(pages, prompts, tokens) for prompts, tokens in sizes}

    def coding(self, tokens: int) -> tuple[Sample, Sample]:
        """Keys and values of 16 bits into pages of codes, and from there into float16 pages."""
        device, heads, count = self._device, self._heads, _blocks(tokens)
        pages, plain = self._pages(count), float_pages(heads, count, torch.float16, self._take)
        k, v = (
            torch.randn(tokens, heads.kv_heads, heads.head_dim, device=device).half()
            for _ in range(2)
        )
        planned = self._kernels.plan_append(torch.arange(tokens, device=device))
        ids, floats = torch.arange(count, device=device), self._of(heads.pages)
        return (
            self._each(lambda: self._kernels.append(pages, k, v, planned)),
            self._each(
                lambda: convert_blocks(pages[None], ids, self._kernels, plain[None], ids, floats)
            ),
        )

    def _decode(self, pages: Tensor, rows: int, context: int) -> Sample:
        load = Workload(f"{rows} x {context}", (context,) * rows)
        layers = make_layers(self._heads, load, len(pages), self._dtype, most=_CALLS)
        return self._attending(pages, [(layer.attention, layer.query) for layer in layers])

    def _read(self, pages: Tensor, prompts: int, tokens: int) -> Sample:
        blocks = _blocks(tokens)
        ids = np.random.default_rng(1).permutation(len(pages))[: prompts * blocks]
        attention = TierAttention(
            token_index=None,
            query_start=np.arange(prompts + 1, dtype=np.int32) * np.int32(tokens),
            num_decode=0 if tokens > 1 else prompts,
            positions=np.tile(np.arange(tokens, dtype=np.int32), prompts),
            block_table=ids.astype(np.int32).reshape(prompts, blocks),
            block_index=None,
        )
        heads = self._heads
        query = torch.randn(prompts * tokens, heads.heads, heads.head_dim).to(self._dtype)
        return self._attending(pages, [(attention, query)])

    def _attending(self, pages: Tensor, layers: Sequence[tuple[TierAttention, Tensor]]) -> Sample:
        kernels = self._kernels
        ready = [(query.to(self._device), kernels.plan(attention)) for attention, query in layers]
        return self._sample([lambda q=q, p=p: kernels.attend(q, pages, p) for q, p in ready])

    def _sample(self, calls: Sequence[Callable[[], object]]) -> Sample:
        """The mean of several calls, by turns."""
        return RecordedCalls(self._probed, calls, _CALLS)

    def _each(self, call: Callable[[], object]) -> Sample:
        """The mean of several calls, which are work enough to hide that they are launched."""

        def run() -> None:
            with torch.inference_mode():
                for _ in range(_CALLS):
                    call()
            self._probed.synchronize()

        return lambda _: timed(run) / _CALLS

    def _pages(self, needed: int) -> Tensor:
        heads, kv = self._heads, self._kv
        if isinstance(kv, CodeType):
            count = max(needed, self._memory_bytes // self._shape.quantized.page_bytes)
            return code_pages(heads, count, kv, self._take)
        count = max(needed, self._memory_bytes // (self._shape.numel * kv.size_bytes))
        return float_pages(heads, count, held_dtype(kv), self._take)

    def _take(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self._device)

    def _of(self, shape: PageShape) -> TierKernels:
        heads = self._heads
        return accelerator_kernels(self._device, heads.heads, shape, heads.scale, 0.0, self._dtype)


def _blocks(tokens: int) -> int:
    return -(-tokens // BLOCK_SIZE)
