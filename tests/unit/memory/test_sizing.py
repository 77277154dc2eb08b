"""Blocks per tier from capacities."""

from dataclasses import replace

import pytest

from tandem.memory.budget import MemoryBudget
from tandem.memory.page import KVPageSpec
from tandem.memory.sizing import PoolSizes, size_pools
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.tier import Tier

PAGE = KVPageSpec(num_layers=4, block_size=16, num_kv_heads=2, head_dim=8, dtype=DType.FLOAT32)
BLOCK = 8 * 1024  # bytes of one block: 4 layers x 2 x 2 heads x 16 tokens x 8 x 4 bytes


def device(blocks: float, **used: int) -> MemoryBudget:
    return MemoryBudget("device", int(blocks * BLOCK) + sum(used.values()), used)


def host(blocks: float) -> MemoryBudget:
    return MemoryBudget("host", int(blocks * BLOCK))


def test_what_is_left_is_filled_with_whole_blocks() -> None:
    assert PAGE.bytes_per_block == BLOCK
    sizes = size_pools(PAGE, device(3.99, weights=1000, workspace=7), host(10), max_tokens=1)
    assert sizes == PoolSizes(device_blocks=3, host_blocks=10)
    assert (sizes.of(Tier.DEVICE), sizes.of(Tier.HOST), sizes.total_blocks) == (3, 10, 13)


def test_a_request_may_fill_both_tiers_together() -> None:
    assert size_pools(PAGE, device(2), host(3), max_tokens=80).total_blocks == 5
    with pytest.raises(ConfigError, match="one request of 81 tokens needs 6 KV blocks"):
        size_pools(PAGE, device(2), host(3), max_tokens=81)


def test_tier_without_blocks_is_legal() -> None:
    assert size_pools(PAGE, device(0.5), host(4), max_tokens=64) == PoolSizes(0, 4)
    assert size_pools(PAGE, device(4), host(0), max_tokens=64) == PoolSizes(4, 0)


def test_upper_bound_per_tier() -> None:
    sizes = size_pools(PAGE, device(100), host(5), max_tokens=64, max_blocks=PoolSizes(8, 9))
    assert sizes == PoolSizes(8, 5)


def test_too_small_names_all_numbers() -> None:
    with pytest.raises(ConfigError) as error:
        size_pools(PAGE, device(2, weights=4096), host(1), max_tokens=100)
    assert error.value.param == "max_model_len"
    assert error.value.message == (
        "memory too small: one request of 100 tokens needs 7 KV blocks of 8.0 KiB, but device "
        "memory holds 2 (of 20.0 KiB after weights 4.0 KiB) and host memory holds 1 (of 8.0 KiB)"
    )
    assert size_pools(PAGE, device(2, weights=4096), host(1), max_tokens=48).total_blocks == 3


def test_each_tier_is_filled_with_blocks_of_its_own_type() -> None:
    page = replace(PAGE, host_dtype=DType.FLOAT16)
    sizes = size_pools(page, device(3.99), host(2.5), max_tokens=1)
    assert sizes == PoolSizes(device_blocks=3, host_blocks=5)
    with pytest.raises(ConfigError, match=r"needs 9 KV blocks of 8.0 KiB, on the host 4.0 KiB,"):
        size_pools(page, device(3), host(2.5), max_tokens=16 * 9)


def test_a_memory_that_is_not_there_is_not_named() -> None:
    with pytest.raises(ConfigError, match=r"but device memory holds 0 \(of 7.2 KiB\)$"):
        size_pools(PAGE, device(0.9), host(0), max_tokens=1)


@pytest.mark.parametrize(
    ("name", "param"), [("device", "gpu_memory"), ("host", "cpu_memory"), ("disk", None)]
)
def test_other_users_beyond_capacity_are_refused(name: str, param: str | None) -> None:
    budget = MemoryBudget(name, 1024, {"weights": 2048, "unused": 0})
    with pytest.raises(ConfigError, match=f"{name} memory too small: weights 2.0 KiB ") as error:
        size_pools(PAGE, budget, host(9), max_tokens=1)
    assert error.value.param == param
