"""The canonical KV page: shapes and bytes."""

import numpy as np
import pytest

from tandem.memory.page import KVPageSpec
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.kv_type import CodeType
from tandem.spec.tier import Tier


def page(**changes: int) -> KVPageSpec:
    facts = {"num_layers": 3, "block_size": 16, "num_kv_heads": 4, "head_dim": 20} | changes
    return KVPageSpec(dtype=DType.BFLOAT16, host_dtype=None, **facts)


def test_bytes_equal_those_of_an_array_of_the_pool_shape() -> None:
    spec = page()
    pool = np.zeros(spec.pool_shape(5), dtype=np.uint16)
    assert spec.page_shape == (2, 4, 16, 20)
    assert pool[0, 0].nbytes == spec.bytes_per_block_layer
    assert pool[:, 0].nbytes == spec.bytes_per_block
    assert pool.nbytes == 5 * spec.bytes_per_block


def test_a_page_is_contiguous_and_layer_major() -> None:
    spec = page()
    pool = np.zeros(spec.pool_shape(5), dtype=np.uint16)
    assert pool[1, 2].flags.c_contiguous
    assert pool.strides[1] == spec.bytes_per_block_layer
    assert pool.strides[0] == 5 * spec.bytes_per_block_layer


def test_fp32_takes_twice_the_bytes() -> None:
    wide = KVPageSpec(3, 16, 4, 20, DType.FLOAT32)
    assert wide.bytes_per_block == 2 * page().bytes_per_block


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (16, 1), (17, 2), (160, 10)])
def test_blocks_for_tokens(tokens: int, blocks: int) -> None:
    assert page().blocks_for_tokens(tokens) == blocks


@pytest.mark.parametrize("size", [16, 32, 64, 128, 256])
def test_allowed_block_sizes(size: int) -> None:
    assert page(block_size=size).block_size == size


@pytest.mark.parametrize("size", [-16, 0, 1, 8, 17, 48, 63, 100, 240, 272, 512])
def test_other_block_sizes_are_refused_with_the_number(size: int) -> None:
    with pytest.raises(ConfigError, match=f"16, 32, 64, 128 or 256 tokens, not {size}") as error:
        page(block_size=size)
    assert error.value.param == "block_size"


def test_ranks_split_the_heads_and_the_bytes() -> None:
    shards = [page(rank=rank, world_size=2) for rank in range(2)]
    assert [s.first_kv_head for s in shards] == [0, 2]
    assert all(s.page_shape == (2, 2, 16, 20) for s in shards)
    assert sum(s.bytes_per_block for s in shards) == page().bytes_per_block


def test_more_ranks_than_heads_replicate_heads() -> None:
    shards = [page(rank=rank, world_size=8) for rank in range(8)]
    assert [s.first_kv_head for s in shards] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert {s.local_kv_heads for s in shards} == {1}


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"world_size": 3}, "4 KV heads cannot be split over 3 ranks"),
        ({"rank": 2, "world_size": 2}, "rank must be between 0 and 1, not 2"),
        ({"rank": -1}, "rank must be between 0 and 0, not -1"),
        ({"num_layers": 0}, "num_layers must be at least 1, not 0"),
        ({"world_size": 0}, "world_size must be at least 1, not 0"),
    ],
)
def test_impossible_shapes_are_refused(facts: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        page(**facts)


@pytest.mark.parametrize(("kv", "head_bytes"), [(CodeType.INT8, 128 + 8), (CodeType.INT4, 64 + 8)])
def test_quantized_pages_hold_codes_scales_and_minima(kv: CodeType, head_bytes: int) -> None:
    spec = KVPageSpec(3, 16, 4, 128, kv, rank=1, world_size=2)
    assert spec.page_shape == (2 * 2 * 16 * head_bytes,)
    assert spec.bytes_per_block == 3 * spec.bytes_per_block_layer == 3 * 2 * 2 * 16 * head_bytes
    assert spec.pool_shape(5) == (3, 5, 2 * 2 * 16 * head_bytes)


def test_the_host_may_hold_another_type() -> None:
    spec = KVPageSpec(3, 16, 4, 128, DType.FLOAT16, host_dtype=CodeType.INT8)
    assert spec.converts
    assert spec.on(Tier.DEVICE) == KVPageSpec(3, 16, 4, 128, DType.FLOAT16)
    assert spec.on(Tier.HOST) == KVPageSpec(3, 16, 4, 128, CodeType.INT8)
    assert not spec.on(Tier.HOST).converts
    assert not KVPageSpec(3, 16, 4, 128, CodeType.INT8, host_dtype=CodeType.INT8).converts
    with pytest.raises(ValueError, match="head_dim of quantized pages"):
        KVPageSpec(3, 16, 4, 576, DType.FLOAT16, host_dtype=CodeType.INT8)


def test_float_pages_are_not_quantized() -> None:
    with pytest.raises(ValueError, match="not 0"):
        _ = page().quantized
    with pytest.raises(ValueError, match="int8"):
        _ = KVPageSpec(3, 16, 4, 20, CodeType.INT8).float_type
