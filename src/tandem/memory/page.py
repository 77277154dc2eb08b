"""The canonical KV page: its shape and its bytes (contracts 7 and 14)."""

import math
from dataclasses import dataclass, replace

from tandem.memory.quantized_page import QuantizedPage
from tandem.spec.block_size import DEFAULT_BLOCK_SIZE, require_block_size
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.kv_type import CodeType, KVType, NarrowFloat
from tandem.spec.model import ModelSpec
from tandem.spec.tier import Tier


@dataclass(frozen=True, slots=True)
class KVPageSpec:
    """Layout of one rank's KV memory, the same bytes on every tier unless `host_dtype` is given.

    A pool is `[layer][block][K|V][kv_head][token][head_dim]`; a *page* is one block of one layer
    and contiguous. Quantized pages are `memory.quantized_page`'s bytes instead. KV heads are split
    evenly over the ranks; with more ranks than heads each head is kept by `world_size /
    num_kv_heads` of them.

    Attributes:
        block_size: tokens per block; as `--block-size`.
        num_kv_heads: of the whole model, not of this rank.
        host_dtype: what the host tier's pages hold instead of `dtype`; None: the same. All sizes
            here are of pages of `dtype`; `on` gives each tier's.

    Raises:
        ConfigError: a block of another size, or heads that cannot be split over the ranks.
        ValueError: heads that cannot be quantized.
    """

    num_layers: int
    block_size: int
    num_kv_heads: int
    head_dim: int
    dtype: KVType
    rank: int = 0
    world_size: int = 1
    host_dtype: KVType | None = None

    def __post_init__(self) -> None:
        require_block_size(self.block_size)
        for name in ("num_layers", "num_kv_heads", "head_dim", "world_size"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"{name} must be at least 1, not {getattr(self, name)}", param=name
                )
        if not 0 <= self.rank < self.world_size:
            raise ConfigError(
                f"rank must be between 0 and {self.world_size - 1}, not {self.rank}", param="rank"
            )
        if self.num_kv_heads % self.world_size and self.world_size % self.num_kv_heads:
            raise ConfigError(
                f"{self.num_kv_heads} KV heads cannot be split over {self.world_size} ranks; "
                f"use a number of ranks that divides {self.num_kv_heads} or is a multiple of it",
                param="world_size",
            )
        if self.code_bits:
            _ = self.quantized
        if self.converts:
            _ = self.on(Tier.HOST)

    @classmethod
    def of_model(
        cls,
        model: ModelSpec,
        *,
        dtype: KVType,
        block_size: int = DEFAULT_BLOCK_SIZE,
        rank: int = 0,
        world_size: int = 1,
        host_dtype: KVType | None = None,
    ) -> "KVPageSpec":
        """The page of a model whose KV cache is kept in `dtype`, on the host in `host_dtype`."""
        return cls(
            num_layers=model.num_layers,
            block_size=block_size,
            num_kv_heads=model.num_kv_heads,
            head_dim=model.head_dim,
            dtype=dtype,
            rank=rank,
            world_size=world_size,
            host_dtype=host_dtype,
        )

    @property
    def converts(self) -> bool:
        """Whether the tiers' pages differ, so that what moves between them is converted."""
        return self.host_dtype not in (None, self.dtype)

    def on(self, tier: Tier) -> "KVPageSpec":
        """The pages of one tier."""
        if self.host_dtype is None:
            return self
        return replace(
            self, dtype=self.host_dtype if tier is Tier.HOST else self.dtype, host_dtype=None
        )

    @property
    def local_kv_heads(self) -> int:
        """KV heads that this rank keeps."""
        return max(1, self.num_kv_heads // self.world_size)

    @property
    def first_kv_head(self) -> int:
        """Number, in the whole model, of the first KV head that this rank keeps."""
        return self.rank * self.num_kv_heads // self.world_size

    @property
    def code_bits(self) -> int:
        """Bits of a code in quantized pages; 0 for pages of floats."""
        return self.dtype.bits if isinstance(self.dtype, CodeType) else 0

    @property
    def float_type(self) -> DType:
        """The element type of pages of floats that products can be taken in.

        Raises:
            ValueError: they hold narrower ones, or are quantized.
        """
        return DType(self.dtype)

    @property
    def held_in_bytes(self) -> bool:
        """Whether pages are kept as bytes: they are quantized, or hold floats of a byte."""
        return isinstance(self.dtype, CodeType | NarrowFloat)

    @property
    def quantized(self) -> QuantizedPage:
        """Layout of a quantized page.

        Raises:
            ValueError: it is not quantized, or its heads cannot be.
        """
        return QuantizedPage(self.code_bits, self.local_kv_heads, self.block_size, self.head_dim)

    @property
    def page_shape(self) -> tuple[int, ...]:
        """(K|V = 2, kv heads of this rank, tokens, head_dim) of one block of one layer; (bytes,) if
        it is quantized.
        """
        if self.code_bits:
            return (self.quantized.page_bytes,)
        return (2, self.local_kv_heads, self.block_size, self.head_dim)

    def pool_shape(self, num_blocks: int) -> tuple[int, ...]:
        """(layers, blocks, *page_shape) of a pool."""
        return (self.num_layers, num_blocks, *self.page_shape)

    @property
    def bytes_per_block_layer(self) -> int:
        """Bytes of one page: one block of one layer on this rank."""
        elements = math.prod(self.page_shape)
        return elements if self.held_in_bytes else elements * self.float_type.size_bytes

    @property
    def bytes_per_block(self) -> int:
        """Bytes of one block over all layers on this rank."""
        return self.num_layers * self.bytes_per_block_layer

    def blocks_for_tokens(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens (the last one perhaps in part)."""
        return -(-num_tokens // self.block_size)
