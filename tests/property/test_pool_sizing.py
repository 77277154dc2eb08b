"""Pools never exceed their memories, and are refused exactly when one request does not fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.memory.budget import MemoryBudget
from tandem.memory.page import KVPageSpec
from tandem.memory.sizing import size_pools
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError

pages = st.builds(
    KVPageSpec,
    num_layers=st.integers(1, 4),
    block_size=st.sampled_from([16, 32, 64]),
    num_kv_heads=st.integers(1, 4),
    head_dim=st.integers(1, 9),
    dtype=st.sampled_from(DType),
)
capacities = st.integers(0, 200_000)


@given(
    page=pages,
    device=capacities,
    weights=capacities,
    host=capacities,
    max_tokens=st.integers(1, 500),
)
def test_sizes(page: KVPageSpec, device: int, weights: int, host: int, max_tokens: int) -> None:
    budgets = (MemoryBudget("device", device, {"weights": weights}), MemoryBudget("host", host))
    fit = [max(0, b.left_bytes) // page.bytes_per_block for b in budgets]
    served = weights <= device and sum(fit) * page.block_size >= max_tokens
    if not served:
        with pytest.raises(ConfigError, match=r"^[^\n]*memory too small: [^\n]*$"):
            size_pools(page, *budgets, max_tokens=max_tokens)
        return
    sizes = size_pools(page, *budgets, max_tokens=max_tokens)
    assert [sizes.device_blocks, sizes.host_blocks] == fit
    assert sizes.device_blocks * page.bytes_per_block + weights <= device
    assert sizes.host_blocks * page.bytes_per_block <= host
