"""Layers from disk on the paced emulator, in virtual time: the disk or the link sets the pace."""

from dataclasses import replace

import pytest
from tests.integration.test_paced_cpu_layers import stages_s
from tests.integration.test_paced_streaming import SMALL, WIDE, token_s

from tandem.cost.rates import accelerator_rates
from tandem.cost.sweep_time import Way, layer_times, sweep_s
from tandem.engine.building.paced import PacedEngine, build_paced_core
from tandem.engine.building.paced_machine import PacedOptions
from tandem.plan.weights import Home, homes_by_layer, streamed_layers
from tandem.runtime.paced.virtual import VirtualClock, VirtualPool
from tandem.spec.config import EngineConfig, HostLayers
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import HardwareSpec
from tandem.spec.parameters import layer_matrix_parameters
from tandem.spec.precision import Precision

DTYPE = DType.BFLOAT16
LAYER_BYTES = layer_matrix_parameters(WIDE) * DTYPE.size_bytes
SPEC = replace(WIDE, num_layers=12)
# the host's memory takes what disk and link move together
HOST = replace(SMALL.host, memory_bandwidth_bytes_per_s=40e9)
SLOW = replace(SMALL, host=replace(HOST, disk_bytes_per_s=3e9))
FAST = replace(SMALL, host=replace(HOST, disk_bytes_per_s=7e9))


_COMPUTED: dict[Home, Way] = {"cpu": "cpu", "disk-cpu": "read-cpu"}


def build(
    hardware: HardwareSpec,
    cpu_memory: str,
    strategy: str = "gpu-only",
    host_layers: HostLayers = "stream",
) -> tuple[PacedEngine, VirtualClock]:
    config = EngineConfig(
        "wide",
        dtype="bfloat16",
        strategy=strategy,
        kv_placement="split" if strategy == "ride-along" else "auto",
        gpu_memory="2GB",
        cpu_memory=cpu_memory,
        host_layers=host_layers,
        max_num_seqs=8,
        max_num_batched_tokens=64,
    )
    clock = VirtualClock()
    options = PacedOptions(cache_bytes=1 << 16, contention=False)
    pool = VirtualPool(stages_s(hardware))
    engine = build_paced_core(config, SPEC, hardware, options, clock=clock, pool=pool)
    return engine, clock


def homes_of(engine: PacedEngine) -> list[Home]:
    return [home for _, home in sorted(homes_by_layer(engine.memory.plan.weights).items())]


def chain_s(homes: list[Home], hardware: HardwareSpec) -> float:
    """Every layer's bytes over the rate of what they come through, one after the other."""
    assert hardware.host.disk_bytes_per_s is not None
    rates = {
        "resident": accelerator_rates(hardware, DTYPE).bytes_per_s,
        "streamed": hardware.link.h2d_bytes_per_s,
        "disk_streamed": hardware.host.disk_bytes_per_s,
        "cpu": hardware.host.memory_bandwidth_bytes_per_s,
        "disk-cpu": hardware.host.disk_bytes_per_s,
    }
    return sum(LAYER_BYTES / rates[home] for home in homes)


@pytest.mark.parametrize("strategy", ["gpu-only", "ride-along"])
@pytest.mark.parametrize("hardware", [SLOW, FAST], ids=["slow-disk", "fast-disk"])
@pytest.mark.parametrize("cpu_memory", ["1200MB", "2GB", "3GB"])
def test_a_token_takes_at_most_its_bytes_over_rates(
    cpu_memory: str, hardware: HardwareSpec, strategy: str
) -> None:
    engine, clock = build(hardware, cpu_memory, strategy)
    homes = homes_of(engine)
    assert homes.count("disk_streamed") > 2
    step_s, _ = token_s(engine, clock)
    assert 0.9 * step_s <= chain_s(homes, hardware)
    # nothing is read or copied faster than the disk and the link are
    assert hardware.host.disk_bytes_per_s is not None
    read_s = homes.count("disk_streamed") * LAYER_BYTES / hardware.host.disk_bytes_per_s
    link_s = (len(homes) - homes.count("resident")) * LAYER_BYTES / hardware.link.h2d_bytes_per_s
    bound_s = max(read_s, link_s)
    assert bound_s <= step_s * 1.0001
    assert bound_s >= 0.9 * step_s


@pytest.mark.parametrize("hardware", [SLOW, FAST], ids=["slow-disk", "fast-disk"])
@pytest.mark.parametrize("cpu_memory", ["1200MB", "3GB"])
def test_the_time_of_a_sweep_is_predicted(cpu_memory: str, hardware: HardwareSpec) -> None:
    engine, clock = build(hardware, cpu_memory)
    names: dict[Home, Way] = {"disk_streamed": "read", "streamed": "loaded"}
    ways: list[Way] = [names.get(home, "resident") for home in homes_of(engine)]
    slots = streamed_layers(engine.memory.plan.weights).slots
    times = layer_times(SPEC, Precision.uniform(DTYPE), 1, hardware)
    assert token_s(engine, clock)[0] == pytest.approx(sweep_s(ways, slots, times), rel=0.05)


@pytest.mark.parametrize("strategy", ["gpu-only", "ride-along"])
@pytest.mark.parametrize("hardware", [SLOW, FAST], ids=["slow-disk", "fast-disk"])
@pytest.mark.parametrize("cpu_memory", ["1200MB", "3GB"])
def test_the_cpu_computes_layers_as_they_come_from_disk(
    cpu_memory: str, hardware: HardwareSpec, strategy: str
) -> None:
    engine, clock = build(hardware, cpu_memory, strategy, "cpu")
    homes = homes_of(engine)
    assert homes.count("disk-cpu") > 2
    assert {*homes} <= {"resident", "cpu", "disk-cpu"}
    step_s, _ = token_s(engine, clock)
    assert 0.9 * step_s <= chain_s(homes, hardware)
    assert hardware.host.disk_bytes_per_s is not None
    assert homes.count("disk-cpu") * LAYER_BYTES / hardware.host.disk_bytes_per_s <= step_s * 1.0001
    ways: list[Way] = [_COMPUTED.get(home, "resident") for home in homes]
    times = layer_times(SPEC, Precision.uniform(DTYPE), 1, hardware)
    assert step_s == pytest.approx(sweep_s(ways, 0, times), rel=0.05)


def test_a_disk_of_unknown_rate_cannot_be_paced() -> None:
    with pytest.raises(ConfigError, match="disk_bytes_per_s"):
        build(SMALL, "2GB")
