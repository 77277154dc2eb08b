"""How much is measured for a profile."""

import math
from dataclasses import dataclass

from tandem.probes.kernel_cases import HeadShape, PageProbe
from tandem.probes.linear_cases import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    WeightKind,
    quantized_kind,
    uncached_bytes,
)
from tandem.spec.dtype import DType
from tandem.spec.kv_type import CodeType, KVType, NarrowFloat

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Effort:
    """Sizes and repeats.

    Attributes:
        rounds: samples of each time, in turns, after one that is thrown away.
        kinds: of weights. card_kinds: of those, what an accelerator multiplies by.
        sides: of square weights. rows: that they are multiplied by; card_rows: by an accelerator,
            whose tiles make steps: where they would end, one row further, and in their middle.
        heads, kv: attention's shape, and what its pages hold.
        batches, contexts: of decode attention, every combination.
        prompts, prompt_tokens: of an accelerator's attention within prompts, likewise.
        memory_bytes: buffers that calls walk through, so that caches do not help.
        link_bytes: sizes of copies, ascending.
        disk_bytes: of the file that is read; a multiple of 64 MiB.
        trips: times that nothing is handed to the threads.
        budget_s: by the clock; where it runs short, what is left is measured in one round each.
    """

    rounds: int
    kinds: tuple[WeightKind, ...]
    sides: tuple[int, ...]
    rows: tuple[int, ...]
    heads: HeadShape
    kv: tuple[KVType, ...]
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    memory_bytes: int
    link_bytes: tuple[int, ...]
    disk_bytes: int
    trips: int
    budget_s: float = math.inf
    card_rows: tuple[int, ...] = (
        1, 4, 8, 16, 32, 64, 65, 96, 128, 129, 160, 192, 193, 224, 256, 257, 288, 320, 321, 384,
        385, 448, 449, 512,
    )  # fmt: skip
    prompts: tuple[int, ...] = (1, 4)
    prompt_tokens: tuple[int, ...] = (64, 512, 2048)

    @property
    def card_kinds(self) -> tuple[WeightKind, ...]:
        """All element types, and whatever codes weights are kept in."""
        codes = (kind for kind in self.kinds if kind.format is not None)
        return FLOAT32, FLOAT16, BFLOAT16, *codes

    def pages(self, kv: KVType) -> PageProbe:
        """Of attention."""
        return PageProbe(self.heads, kv, self.memory_bytes)

    def shapes(self) -> tuple[str, ...]:
        """What is measured, in words."""
        kinds = ", ".join(map(str, self.kinds))
        kv = ", ".join(map(str, self.kv))
        return (
            f"linear: weights of {kinds}; {_list(self.sides)} square; rows {_list(self.rows)}, "
            f"an accelerator's {_list(self.card_rows)}",
            f"attention {self.heads}: pages of {kv}; rows {_list(self.batches)}; context "
            f"{_list(self.contexts)}; an accelerator's prompts {_list(self.prompts)} of "
            f"{_list(self.prompt_tokens)} tokens",
        )


_KINDS = (FLOAT32, FLOAT16, BFLOAT16, quantized_kind(8, 64), quantized_kind(4, 64))
_KV = (*DType, *NarrowFloat, *CodeType)


def coarse() -> Effort:
    """Under a minute where nobody else keeps the processor busy, disks aside."""
    return Effort(
        rounds=3,
        kinds=_KINDS,
        sides=(1024, 4096),
        rows=(1, 4, 8, 16, 32, 64, 128, 512),
        heads=HeadShape(32, 8, 128),
        kv=_KV,
        batches=(1, 8, 32),
        contexts=(64, 512, 2048),
        memory_bytes=uncached_bytes(),
        link_bytes=(4096, 64 << 10, _MIB, 16 * _MIB, 128 * _MIB),
        disk_bytes=256 * _MIB,
        trips=300,
        budget_s=60.0,
    )


def thorough() -> Effort:
    """Some minutes: finer, and more repeats."""
    return Effort(
        rounds=7,
        kinds=_KINDS,
        sides=(512, 1024, 2048, 4096, 8192),
        rows=(1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512),
        heads=HeadShape(32, 8, 128),
        kv=_KV,
        batches=(1, 2, 4, 8, 16, 32, 64),
        contexts=(64, 256, 512, 1024, 2048),
        memory_bytes=2 * uncached_bytes(),
        link_bytes=tuple(4096 << 2 * i for i in range(9)),
        disk_bytes=1024 * _MIB,
        trips=3000,
        prompts=(1, 2, 4, 8),
        prompt_tokens=(64, 256, 512, 1024, 2048, 4096),
    )


def _list(sizes: tuple[int, ...]) -> str:
    return " ".join(map(str, sizes))
