"""Which layers the host alone keeps in memory, and what is said when not even the slots fit."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tandem.engine.disk_choice import check_disk_placement, choose_disk_placement
from tandem.engine.weight_placement import WeightSizes, all_resident
from tandem.memory.budget import MemoryBudget
from tandem.plan.disk_slots import slots_bytes
from tandem.plan.weights import WeightPlacement, disk_layers, homes_by_layer
from tandem.spec.errors import ConfigError
from tandem.spec.units import MIB, parse_size


@given(
    layers=st.integers(1, 90),
    layer=st.integers(1, 64 * MIB),
    outside=st.integers(0, 100 * MIB),
    used=st.integers(0, 100 * MIB),
    kv=st.integers(1, 100 * MIB),
    capacity=st.integers(0, 8192 * MIB),
)
def test_the_most_layers_that_fit_are_in_memory(
    layers: int, layer: int, outside: int, used: int, kv: int, capacity: int
) -> None:
    sizes = WeightSizes(layer, layers, outside)
    slots = slots_bytes(layer)
    least = outside + used + kv + min(slots, layers * layer)
    host = MemoryBudget("host", capacity, {"workspace": used})
    if capacity < least:
        with pytest.raises(ConfigError, match="even with every layer read from disk") as error:
            choose_disk_placement(sizes, host, kv)
        assert error.value.param == "cpu_memory"
        named = re.search(r"--host-memory (\w+) or more", str(error.value))
        assert named is not None
        enough = parse_size(named[1])
        assert least <= enough < least + MIB
        choose_disk_placement(sizes, replace(host, capacity_bytes=enough), kv)
        return
    placement = choose_disk_placement(sizes, host, kv)
    assert sorted(homes_by_layer(placement)) == list(range(layers))
    on_disk = disk_layers(placement)
    taken = sizes.device_bytes(placement) + (slots if on_disk else 0)
    assert taken + used + kv <= capacity
    if not on_disk:
        assert placement == all_resident(layers)
        return
    assert outside + layers * layer + used + kv > capacity
    assert len(on_disk) == layers or taken + layer + used + kv > capacity
    gaps = [b - a for a, b in pairwise(on_disk)]
    assert not gaps or max(gaps) - min(gaps) <= 1


@given(st.integers(1, 40), st.integers(0, 40))
def test_the_disk_and_memory_hold_every_layer_once(layers: int, on_disk: int) -> None:
    assume(on_disk <= layers)
    sizes = WeightSizes(1000, layers, 0)
    placement = (WeightPlacement(0, on_disk - 1, "disk"),) if on_disk else ()
    assert sizes.disk_bytes(placement) + sizes.device_bytes(placement) == layers * 1000


def test_beside_an_accelerator_layers_on_disk_are_refused() -> None:
    placement = (WeightPlacement(0, 3, "disk"),)
    check_disk_placement(placement, host_only=True)
    with pytest.raises(ConfigError, match="--accelerator none") as error:
        check_disk_placement(placement, host_only=False)
    assert error.value.param == "placement"
