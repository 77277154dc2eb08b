"""Put an executor together: memory, maths, and an order of execution."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from tandem.devices.cuda.driver import CudaDriver, open_stream_counters
from tandem.devices.cuda.graphs import CudaGraphs
from tandem.devices.cuda.memory import CudaMemory, pin
from tandem.models.model import Model
from tandem.plan.program import Queue
from tandem.runtime.build_machine import MachineSizes, build_machine, layer_runner
from tandem.runtime.exact import ExactExecutor
from tandem.runtime.executor import Executor
from tandem.runtime.inline import InlineExecutor
from tandem.runtime.machine import Machine
from tandem.runtime.machine_measures import CudaMeasures, EmulatedMeasures, HostMeasures
from tandem.runtime.measures import DeviceMeasures
from tandem.runtime.record_graphs import record_graphs
from tandem.runtime.running import Running
from tandem.spec.errors import ConfigError

if TYPE_CHECKING:
    from tandem.devices.batch_copies import BatchCopies
    from tandem.devices.stream_counters import StreamCounters
    from tandem.plan.executed_op import OpListener


@dataclass(frozen=True, slots=True)
class Assembled:
    """An executor and what it can tell about its device.

    Attributes:
        notes: what could not be had, one line each.
    """

    executor: Executor
    machine: Machine
    measures: DeviceMeasures
    notes: tuple[str, ...] = ()


def on_host(
    model: Model,
    sizes: MachineSizes,
    *,
    threads: bool = False,
    listeners: "Sequence[OpListener]" = (),
) -> Assembled:
    """No accelerator: programs run on the caller's thread, or on a thread per queue (tests).

    Args:
        listeners: told of every operation that has ended.
    """
    machine = build_machine(model, sizes, _stay, host_only=True)
    measures = HostMeasures(machine)
    if not threads:
        executor = InlineExecutor(machine, layer_runner(model, machine), listeners)
        return Assembled(executor, machine, measures)
    from tandem.runtime.threaded import HostDriver, ThreadedExecutor

    threaded = ThreadedExecutor(machine, listeners)
    threaded.start(HostDriver(threaded))
    return Assembled(threaded, machine, measures)


def on_exact_emulator(
    model: Model, sizes: MachineSizes, seed: int, listeners: "Sequence[OpListener]" = ()
) -> Assembled:
    """The emulated accelerator in exact mode."""
    machine = build_machine(model, sizes, _stay)
    if sizes.graphs is not None:
        from tandem.runtime.graph_maker import EmulatedGraphs

        record_graphs(machine, model, sizes.graphs, sizes.page.block_size, EmulatedGraphs())
    measures = EmulatedMeasures(machine, model, f"emulated accelerator (exact, seed {seed})")
    return Assembled(ExactExecutor(machine, seed, listeners), machine, measures)


def on_cuda(model: Model, sizes: MachineSizes, listeners: "Sequence[OpListener]" = ()) -> Assembled:
    """A CUDA device: streams and events, one launching thread per queue."""
    from tandem.runtime.overlap_meter import OverlapMeter
    from tandem.runtime.threaded import ThreadedExecutor
    from tandem.runtime.timelines import make_timelines

    uploads: list[Callable[[torch.Tensor], torch.Tensor]] = []
    machine = build_machine(model, sizes, lambda tensor: uploads[0](tensor), pin)
    if sizes.batched_copies:
        machine.runner.batches = _batch_copies()
    if sizes.graphs is not None:
        maker = CudaGraphs(model.device)
        record_graphs(machine, model, sizes.graphs, sizes.page.block_size, maker)
    memory = CudaMemory(model.device)
    meter = OverlapMeter()
    counters, notes = _stream_counters(machine, sizes)
    timelines = make_timelines(None if counters is None else counters.addresses)
    executor = ThreadedExecutor(machine, (meter.executed, *listeners), timelines)
    driver: CudaDriver[Running] = CudaDriver(
        model.device, executor.completed, executor.failed, timelines, counters
    )
    uploads.append(driver.upload)
    executor.start(driver)
    measures = CudaMeasures(memory, machine, meter)
    return Assembled(executor, machine, measures, notes)


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
    """
    if machine.host_tasks is None or not sizes.host_blocks:
        return None, ()
    from tandem.devices.stream_counters import NoStreamCountersError

    try:
        return open_stream_counters(machine.device, (Queue.D2H,)), ()
    except NoStreamCountersError as error:
        told = f"the CPU's part of a layer begins when a thread has seen its input come: {error}"
        return None, (told,)


def _stay(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
