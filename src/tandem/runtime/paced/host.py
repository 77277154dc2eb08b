"""The host tier of the paced emulator: real pages of random bytes, and real work on them."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from tandem.kernels.open_pool import open_pool_on
from tandem.kernels.pages import PageShape
from tandem.memory.page import KVPageSpec
from tandem.models.weights import torch_dtype
from tandem.plan.binding import LaneBinding
from tandem.plan.program import OpKind, ProgramOp
from tandem.runtime.choose_kernels import host_kernels
from tandem.runtime.lane_context import TierContext, make_tier_context
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec
from tandem.spec.tier import Tier

CACHE_MULTIPLE = 8
_EXPECTED_FILL = 0.75
_CHUNK_BYTES = 64 << 20

# (unsigned type, bits kept of random ones, bits set): any sign and mantissa, magnitude 0.5 to 1.
_PATTERNS = {
    DType.FLOAT32: (np.uint32, 0x807FFFFF, 0x3F000000),
    DType.FLOAT16: (np.uint16, 0x83FF, 0x3800),
    DType.BFLOAT16: (np.uint16, 0x807F, 0x3F00),
}


@dataclass(frozen=True, slots=True)
class Aliasing:
    """How many sets of one layer's pages there are; attention walks through them in turn.

    Attributes:
        sets: k; visit n of any layer uses set n modulo k.
        wanted_bytes: 8 times the last-level cache.
        cache_bytes: the last-level cache.
    """

    sets: int
    set_bytes: int
    wanted_bytes: int
    cache_bytes: int

    @property
    def distinct_bytes(self) -> int:
        """Distinct bytes behind the host tier."""
        return self.sets * self.set_bytes


def plan_aliasing(page: KVPageSpec, blocks: int, cache_bytes: int, limit_bytes: int) -> Aliasing:
    """As many sets as give 8 times the cache in distinct bytes, capped by `limit_bytes`.

    A pool is expected to be three quarters full: what is read counts, not what is there.
    There may be fewer sets than layers (all layers share them) or more (so that a model of few
    layers does not fit the cache).
    """
    set_bytes = max(1, blocks * page.bytes_per_block_layer)
    wanted = CACHE_MULTIPLE * cache_bytes
    sets = min(math.ceil(wanted / (set_bytes * _EXPECTED_FILL)), limit_bytes // set_bytes)
    return Aliasing(max(1, sets) if blocks else 0, set_bytes, wanted, cache_bytes)


class PacedHost:
    """Executes the host's operations; their results are thrown away, their time is real.

    Args:
        blocks: of the host tier's pool.
        seed: of pages and queries.
        cores: that the compiled kernels' threads run on, where there are such kernels; None: one
            thread anywhere.

    Attributes:
        pool: those threads; None without compiled kernels.

    Raises:
        ConfigError: TANDEM_CPU_ISA cannot be followed.
    """

    def __init__(
        self,
        model: ModelSpec,
        page: KVPageSpec,
        blocks: int,
        aliasing: Aliasing,
        seed: int,
        cores: tuple[int, ...] | None = None,
    ) -> None:
        self._heads, self._kv_heads, self._dim = model.num_heads, model.num_kv_heads, model.head_dim
        self._dtype = page.float_type
        self._random = np.random.Generator(np.random.SFC64(seed))
        shape = PageShape(page.local_kv_heads, page.block_size, page.head_dim)
        self._windows = model.layer_windows
        self.pool = open_pool_on(cores)
        self._kernels = host_kernels(model, shape, self.pool)
        self._pages_shape = (aliasing.sets, blocks, *page.page_shape)
        self._queries = self._random_tensor((0, self._heads, self._dim))
        self._entries = self._random_tensor((0, self._kv_heads, self._dim))
        self._visits = 0

    def draw_pages(self) -> None:
        """Now rather than when they are first read: gigabytes, which scripted work never needs."""
        _ = self._pages

    @cached_property
    def _pages(self) -> torch.Tensor:
        return self._random_tensor(self._pages_shape)

    def prepare(self, binding: LaneBinding) -> TierContext:
        """What a lane's operations need; made once per lane and step on the submitting thread."""
        cpu = torch.device("cpu")
        context = make_tier_context(binding, Tier.HOST, cpu, self._kernels, self._windows)
        # Values leave the accelerator in the order of selection; here any will do.
        tokens = binding.num_tokens
        if len(self._queries) < tokens:
            self._queries = self._random_tensor((tokens, self._heads, self._dim))
            self._entries = self._random_tensor((tokens, self._kv_heads, self._dim))
        return context

    @torch.inference_mode()
    def run(self, op: ProgramOp, lanes: list[TierContext]) -> None:
        """Append or attend; an attention moves on to the next set of pages."""
        if not len(self._pages):
            return
        pages = self._pages[self._visits % len(self._pages)]
        for lane in lanes:
            if op.kind is OpKind.ATTEND and lane.plans is not None:
                query = self._queries[: lane.plans.num_tokens]
                self._kernels.attend(query, pages, lane.plans.of(op.layer))
            elif op.kind is OpKind.APPEND and lane.planned_append is not None:
                assert lane.slots is not None
                entries = self._entries[: len(lane.slots)]
                self._kernels.append(pages, entries, entries, lane.planned_append)
        self._visits += op.kind is OpKind.ATTEND

    def _random_tensor(self, shape: tuple[int, ...]) -> torch.Tensor:
        """Random, distinct, finite, non-zero: nothing that a kernel or a cache could shortcut."""
        unsigned, kept, base = _PATTERNS[self._dtype]
        raw = np.empty(shape, dtype=unsigned)
        flat = raw.reshape(-1)
        step = _CHUNK_BYTES // raw.itemsize
        drawn = np.frombuffer(self._random.bytes(flat[:step].nbytes), dtype=unsigned)
        pattern = (drawn & unsigned(kept)) | unsigned(base)
        # Drawing gigabytes takes long: chunks are one drawn pattern, each turned and under a key.
        for begin in range(0, len(flat), step):
            part = flat[begin : begin + step]
            key = unsigned(int(self._random.integers(1 << 16)) & kept)
            turn = int(self._random.integers(len(part)))
            split = len(part) - turn
            np.bitwise_xor(pattern[turn : len(part)], key, out=part[:split])
            np.bitwise_xor(pattern[:turn], key, out=part[split:])
        return torch.from_numpy(raw.view(np.uint8)).view(torch_dtype(self._dtype))
