"""Put an executor together on a CUDA device: streams, graphs, counters."""

import gc
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import torch

from tandem.devices.cuda.device import device_node
from tandem.devices.cuda.driver import CudaDriver, open_stream_counters
from tandem.devices.cuda.graphs import CudaGraphs
from tandem.devices.cuda.memory import (
    CudaMemory,
    as_seen_by,
    give_back_memory,
    pin,
    pinned_bytes,
)
from tandem.kernels.link_copies import LinkCopies
from tandem.models.model import Model
from tandem.plan.program import Queue
from tandem.runtime.assemble import Assembled
from tandem.runtime.build_machine import MachineSizes, build_machine
from tandem.runtime.machine import Machine
from tandem.runtime.machine_measures import CudaMeasures
from tandem.runtime.overlap_meter import OverlapMeter
from tandem.runtime.record_graphs import record_graphs
from tandem.runtime.running import Launch
from tandem.runtime.threaded import ThreadedExecutor
from tandem.runtime.timelines import make_timelines
from tandem.spec.errors import ConfigError

if TYPE_CHECKING:
    from tandem.devices.batch_copies import BatchCopies
    from tandem.devices.stream_counters import StreamCounters
    from tandem.plan.executed_op import OpListener
    from tandem.runtime.host_link import HostLink


def on_cuda(model: Model, sizes: MachineSizes, listeners: "Sequence[OpListener]" = ()) -> Assembled:
    """A CUDA device: streams and events, one launching thread per queue."""
    uploads: list[Callable[[torch.Tensor], torch.Tensor]] = []
    machine = build_machine(model, sizes, lambda tensor: uploads[0](tensor), pin)
    if sizes.host_blocks:
        batches = _batch_copies() if sizes.batched_copies else None
        machine.runner.moves.link = LinkCopies(model.device, batches)
    if sizes.graphs is not None:
        maker = CudaGraphs(model.device)
        block_size = sizes.page.block_size
        record_graphs(machine, model, sizes.graphs, block_size, maker, _link_of(model, machine))
    memory = CudaMemory(model.device)
    meter = OverlapMeter()
    counters, notes = _stream_counters(machine, sizes)
    timelines = make_timelines(None if counters is None else counters.addresses)
    executor = ThreadedExecutor(machine, listeners, timelines, meter.executed)
    driver: CudaDriver[Launch] = CudaDriver(
        model.device, executor.completed, executor.failed, timelines, counters
    )
    uploads.append(driver.upload)
    executor.start(driver, driver if sizes.stream_waits else None)
    measures = CudaMeasures(memory, machine, meter)
    return Assembled(executor, machine, measures, notes, _ending(machine))


def _ending(machine: Machine) -> Callable[[], None]:
    """Gives the device's memory back at once: another engine may be built next, of which weights
    and KV would not fit beside those of one that is garbage.
    """
    held = [machine]

    def end() -> None:
        held.pop().free()
        gc.collect()  # the runner and its graphs know each other
        with suppress(RuntimeError):  # of a device that failed, which was told where it struck
            give_back_memory()

    return end


def _link_of(model: Model, machine: Machine) -> "Callable[[int], HostLink] | None":
    """By which graphs and the CPU's threads hand rows to each other, where both can."""
    from tandem.kernels import triton_support

    if machine.host_tasks is None or triton_support.unit_of(model.device) is None:
        return None
    from tandem.runtime.host_link import HostLink

    spec, device = model.spec, model.device
    heads = spec.num_heads, spec.num_kv_heads, spec.head_dim
    pinned, seen = partial(pinned_bytes, node=device_node(device)), partial(as_seen_by, device)
    return lambda places: HostLink(places, heads, model.dtype, device, pinned, seen)


def _batch_copies() -> "BatchCopies":
    from tandem.devices.batch_copies import BatchCopies, NoBatchCopiesError

    try:
        return BatchCopies()
    except NoBatchCopiesError as error:
        raise ConfigError(
            f"--link-copies batched cannot be: {error}; leave it out", param="link_copies"
        ) from None


def _stream_counters(
    machine: Machine, sizes: MachineSizes
) -> tuple["StreamCounters | None", tuple[str, ...]]:
    """What copies to the host tell native threads by that their work can begin; a note if there
    should be such, but are not.

    Raises:
        ConfigError: streams were to wait, and cannot.
    """
    if machine.host_tasks is None or not sizes.host_blocks:
        if sizes.stream_waits:
            lacks = "KV memory on the host" if machine.host_tasks else "the compiled kernels"
            raise _no_waits(f"there is nothing to wait for without {lacks}")
        return None, ()
    from tandem.devices.stream_counters import NoStreamCountersError

    try:
        if sizes.stream_waits:
            both = Queue.D2H, Queue.CPU
            return open_stream_counters(machine.device, both, waits=True), ()
        return open_stream_counters(machine.device, (Queue.D2H,)), ()
    except NoStreamCountersError as error:
        if sizes.stream_waits:
            raise _no_waits(str(error)) from None
        told = f"the CPU's part of a layer begins when a thread has seen its input come: {error}"
        return None, (told,)


def _no_waits(reason: str) -> ConfigError:
    return ConfigError(f"--link-waits stream cannot be: {reason}; leave it out", param="link_waits")
