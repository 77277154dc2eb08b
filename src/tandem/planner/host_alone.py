"""The host alone as the planner sees it: one device, which computes where everything lies."""

from dataclasses import replace

from tandem.cost.rates import HOST_OPERATION_S
from tandem.planner.question import Question
from tandem.spec.dtype import DType
from tandem.spec.hardware import AcceleratorFacts, HardwareSpec, HostFacts, LinkFacts


def host_alone(name: str, host: HostFacts) -> HardwareSpec:
    """A host without an accelerator. Its kernels compute in float32, whatever weights are in."""
    rate = host.memory_bandwidth_bytes_per_s
    device = AcceleratorFacts(
        memory_bytes=host.memory_bytes,
        memory_bandwidth_bytes_per_s=rate,
        memory_efficiency=1.0,
        compute_efficiency=1.0,
        launch_latency_s=0.0,
        kernel_overhead_s=HOST_OPERATION_S,
        flops_per_s=dict.fromkeys(DType, host.flops_per_s),
    )
    return HardwareSpec(name, device, LinkFacts(rate, rate, 0.0), host)


def with_host(alone: HardwareSpec, host: HostFacts) -> HardwareSpec:
    """The same host with other rates; its memory as it was."""
    other = host_alone(alone.name, host)
    size = alone.accelerator.memory_bytes
    return replace(other, accelerator=replace(other.accelerator, memory_bytes=size))


def with_more_memory(question: Question, size_bytes: int) -> Question:
    """The question for a host with more memory, all of which may be used."""
    hardware = question.hardware
    device = replace(
        hardware.accelerator, memory_bytes=hardware.accelerator.memory_bytes + size_bytes
    )
    return replace(
        question,
        hardware=replace(hardware, accelerator=device),
        device_bytes=question.device_bytes + size_bytes,
    )
