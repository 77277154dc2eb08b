"""How long a sweep takes whose layers, or their MLPs alone, are resident, streamed, also from disk,
or on the CPU.

The layers of a sweep are one chain, from device to device; loads run beside it, each as soon as its
slot is free and, if its layer is on disk, that has been read; reads run beside both. Attention is
left out: it is done where the KV lies, whoever computes the layer.
"""

from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tandem.cost.expert_use import ExpertUse
from tandem.cost.rates import (
    HOST_OPERATION_S,
    DeviceRates,
    accelerator_rates,
    d2h_rates,
    h2d_rates,
)
from tandem.cost.split_mixture import MixtureBytes, MixturePart, choice_bytes, route_cost
from tandem.cost.stage import copy_cost, partial_bytes, staged_qkv_bytes
from tandem.plan.disk_slots import slots_in_use
from tandem.spec.hardware import HardwareSpec
from tandem.spec.layer_operations import layer_operations
from tandem.spec.model import ModelSpec
from tandem.spec.operations import Operation, split_post
from tandem.spec.parameters import layer_matrix_bytes, mlp_matrix_bytes
from tandem.spec.precision import Precision

Way = Literal["resident", "loaded", "loaded-mlp", "read", "cpu", "read-cpu", "cpu-mlp"]
"""`read`: from disk, and then loaded; `read-cpu`: from disk for the CPU. `loaded-mlp`, `cpu-mlp`:
the MLP alone.
"""
LOADED: tuple[Way, ...] = ("loaded", "loaded-mlp", "read")
_ON_CPU: tuple[Way, ...] = ("cpu", "read-cpu")
_SWEEPS = 3  # until a prediction is that of a steady state


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """One layer in a sweep of some number of tokens.

    Attributes:
        accelerator_s, cpu_s: its stages there.
        load_s: its weights over the link. read_s: from disk; 0 if the disk's rate is not known.
        queries_s: q, k and v to the accelerator's part of attention, and the result back.
        turn_s: residuals to the CPU and back, once for adjacent layers there.
        host_read_s: its weights out of the host's memory at full rate, by the link.
        cpu_read_s: those that the CPU needs, likewise; of experts, the expected number.
        attention_s: on the accelerator, without the MLP.
        mlp_cpu_s, mlp_read_s, mlp_load_s, mlp_host_read_s: of the MLP alone, as of the layer.
    """

    accelerator_s: float
    cpu_s: float
    load_s: float
    queries_s: float
    turn_s: float
    host_read_s: float
    read_s: float = 0.0
    cpu_read_s: float = 0.0
    attention_s: float = 0.0
    mlp_cpu_s: float = 0.0
    mlp_read_s: float = 0.0
    mlp_load_s: float = 0.0
    mlp_host_read_s: float = 0.0


def layer_times(
    spec: ModelSpec, precision: Precision, tokens: int, hardware: HardwareSpec
) -> LayerTimes:
    """Of `tokens` tokens, by a roofline on the hardware's rates; of the last layer, if they
    differ.
    """
    # imported where layers are elsewhere: a first token waits for what is imported
    from tandem.cost.quantized import COMPILED, PreciseStage, gpu_kernels

    layer, dtype = spec.num_layers - 1, precision.weights
    every = layer_operations(spec, layer)
    operations = [op for op in every if not op.is_attention]
    mlp = split_post(every).mlp.of(every)
    before = [op for op in operations if op not in mlp]
    host = _host_rates(hardware)
    up, down = h2d_rates(hardware), d2h_rates(hardware)
    weights = layer_matrix_bytes(spec, precision, layer)
    mlp_weights = mlp_matrix_bytes(spec, precision, layer)
    residual = tokens * spec.hidden_size * dtype.size_bytes
    queries = staged_qkv_bytes(spec, tokens, tokens, dtype)
    accelerator = accelerator_rates(hardware, dtype)
    kernels = gpu_kernels(hardware.accelerator, dtype)
    disk = hardware.host.disk_bytes_per_s

    def here_s(stage: Sequence[Operation]) -> float:
        return PreciseStage(stage, precision, kernels).cost(tokens, accelerator).total_s

    on_cpu, mlp_on_cpu = (PreciseStage(stage, precision, COMPILED) for stage in (operations, mlp))
    return LayerTimes(
        accelerator_s=here_s(operations),
        cpu_s=on_cpu.cost(tokens, host).total_s,
        load_s=copy_cost(weights, up).total_s,
        queries_s=copy_cost(queries, up).total_s
        + copy_cost(partial_bytes(spec, tokens), down).total_s,
        turn_s=copy_cost(residual, up).total_s + copy_cost(residual, down).total_s,
        host_read_s=weights / host.bytes_per_s,
        read_s=0.0 if disk is None else weights / disk,
        cpu_read_s=on_cpu.read_bytes(tokens) / host.bytes_per_s,
        attention_s=here_s(before),
        mlp_cpu_s=mlp_on_cpu.cost(tokens, host).total_s,
        mlp_read_s=mlp_on_cpu.read_bytes(tokens) / host.bytes_per_s,
        mlp_load_s=copy_cost(mlp_weights, up).total_s,
        mlp_host_read_s=mlp_weights / host.bytes_per_s,
    )


@dataclass(frozen=True, slots=True)
class SplitTimes:
    """The end of a layer with experts, all of them in host memory, or some on the accelerator.

    Attributes:
        shared: the accelerator has some, and routes.
        route_s: there, before the experts. accelerator_s: of its experts.
        cpu_s: of the others on the CPU; if those are all, from the norm before the router on.
        choice_s: where tokens go, to the CPU, beside the residual.
        cpu_read_s: the CPU's experts out of the host's memory at full rate; the expected number.
        load_s: of the others over the link, whichever tokens go to. host_read_s: those out of the
            host's memory at full rate.
    """

    shared: bool
    route_s: float
    accelerator_s: float
    cpu_s: float
    choice_s: float
    cpu_read_s: float
    load_s: float = 0.0
    host_read_s: float = 0.0


def split_times(
    spec: ModelSpec,
    precision: Precision,
    tokens: int,
    hardware: HardwareSpec,
    layer: int,
    resident: Collection[int],
    use: ExpertUse,
    sizes: MixtureBytes,
) -> SplitTimes:
    """Of `tokens` tokens in a layer with these `resident` experts, if any, as `layer_times`."""
    dtype, every = precision.weights, range(len(use.shares[layer]))
    host = _host_rates(hardware)
    accelerator, down = accelerator_rates(hardware, dtype), d2h_rates(hardware)
    here = MixturePart(spec, layer, [i for i in every if i in resident], use, tokens)
    others = MixturePart(spec, layer, [i for i in every if i not in resident], use, tokens)
    shared, cpu_s = bool(resident), others.cost(dtype, host).total_s
    left = sizes.left(len(here.experts))
    return SplitTimes(
        shared=shared,
        route_s=route_cost(spec, tokens, dtype, accelerator).total_s if shared else 0.0,
        accelerator_s=here.cost(dtype, accelerator).total_s,
        cpu_s=cpu_s if shared else cpu_s + route_cost(spec, tokens, dtype, host).total_s,
        choice_s=choice_bytes(spec, tokens) / down.bytes_per_s if shared else 0.0,
        cpu_read_s=others.read_elements * dtype.size_bytes / host.bytes_per_s,
        load_s=copy_cost(left, h2d_rates(hardware)).total_s,
        host_read_s=left / host.bytes_per_s,
    )


def _host_rates(hardware: HardwareSpec) -> DeviceRates:
    return DeviceRates(
        hardware.host.memory_bandwidth_bytes_per_s, hardware.host.flops_per_s, HOST_OPERATION_S
    )


def sweep_s(
    ways: Sequence[Way],
    slots: int,
    times: LayerTimes,
    split: Mapping[int, SplitTimes] | None = None,
) -> float:
    """Time from one sweep to the next when one follows the other.

    Args:
        ways: of each layer. slots: that loaded layers go through in turn; they stay there if they
            are no more.
        split: of layers with experts, by number; for those with way `cpu-mlp` or `loaded-mlp`.
    """
    split = split or {}
    loads = list(_loads(ways, times, split))
    reloads = len(loads) > slots
    on_disk = ways.count("read") + ways.count("read-cpu")
    reader = _Reader(slots_in_use(on_disk), times.read_s)
    loader = _Loader(slots, reader)
    chain_s = before_s = 0.0
    for _ in range(_SWEEPS):
        before_s, at, last = chain_s, 0, "resident"
        for layer, way in enumerate(ways):
            if way == "loaded-mlp":
                chain_s += times.attention_s
            if way in LOADED:
                chain_s = max(chain_s, loader.ready[0])
            if way == "read-cpu":
                chain_s = max(chain_s, reader.take_s())
            if way in _ON_CPU:
                on_host = last in (*_ON_CPU, "cpu-mlp")
                chain_s += times.cpu_s + times.queries_s + (0 if on_host else times.turn_s)
            elif way == "cpu-mlp" and layer in split:
                chain_s += _split_s(split[layer], times)
            elif way == "cpu-mlp":
                chain_s += times.attention_s + times.turn_s + times.mlp_cpu_s
            elif way == "loaded-mlp":
                chain_s += times.accelerator_s - times.attention_s
            else:
                chain_s += times.accelerator_s
            if way == "read-cpu":
                reader.give_back(chain_s)
            if way in LOADED and reloads:
                loader.load(chain_s, loads[(at + slots) % len(loads)])
                at += 1
            last = "resident" if layer in split and split[layer].shared else way
    # link, disk and cores share the host's memory
    moved_s = sum(load.moved_s for load in loads) if reloads else 0.0
    moved_s += ways.count("read-cpu") * times.host_read_s
    read_s = sum(ways.count(way) for way in _ON_CPU) * times.cpu_read_s
    for layer, way in enumerate(ways):
        if way == "cpu-mlp":
            read_s += split[layer].cpu_read_s if layer in split else times.mlp_read_s
    return max(chain_s - before_s, read_s + moved_s)


@dataclass(frozen=True, slots=True)
class _Load:
    """What comes to the accelerator.

    Attributes:
        read: from disk before. link_s: on the link.
        moved_s: of the host's memory, also for a read into it before.
    """

    read: bool
    link_s: float
    moved_s: float


def _loads(
    ways: Sequence[Way], times: LayerTimes, split: Mapping[int, SplitTimes]
) -> Iterator[_Load]:
    """In turn."""
    for layer, way in enumerate(ways):
        if way == "loaded-mlp" and layer in split:
            yield _Load(False, split[layer].load_s, split[layer].host_read_s)
        elif way == "loaded-mlp":
            yield _Load(False, times.mlp_load_s, times.mlp_host_read_s)
        elif way in LOADED:
            read = way == "read"
            yield _Load(read, times.load_s, (2 if read else 1) * times.host_read_s)


def _split_s(split: SplitTimes, times: LayerTimes) -> float:
    """Of a layer whose experts work on both sides at once."""
    on_cpu = split.choice_s + times.turn_s + split.cpu_s
    return times.attention_s + split.route_s + max(on_cpu, split.accelerator_s)


class _Reader:
    """When layers on disk are in the host's slots, in turn."""

    def __init__(self, slots: int, read_s: float) -> None:
        self._ready = deque([0.0] * slots)
        self._disk_s = 0.0
        self._read_s = read_s

    def take_s(self) -> float:
        """When the next layer is there."""
        return self._ready.popleft()

    def give_back(self, free_s: float) -> None:
        """Read another one into the slot of the layer taken first, which is free at `free_s`."""
        self._disk_s = max(self._disk_s, free_s) + self._read_s
        self._ready.append(self._disk_s)


class _Loader:
    """When layers are in the accelerator's slots.

    Attributes:
        ready: when the layers in the accelerator's slots are there, in turn.
    """

    def __init__(self, slots: int, reader: _Reader) -> None:
        self.ready = deque([0.0] * slots)
        self._reader = reader
        self._link_s = 0.0

    def load(self, free_s: float, load: _Load) -> None:
        """Into the first slot, which is free at `free_s`."""
        self.ready.popleft()
        start_s = max(self._link_s, free_s)
        if load.read:
            start_s = max(start_s, self._reader.take_s())
        self._link_s = start_s + load.link_s
        if load.read:
            self._reader.give_back(self._link_s)
        self.ready.append(self._link_s)
