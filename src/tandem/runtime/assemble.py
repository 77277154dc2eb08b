"""Put an executor together: memory, maths, and an order of execution."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from tandem.models.model import Model
from tandem.runtime.build_machine import MachineSizes, build_machine, layer_runner
from tandem.runtime.executor import Executor
from tandem.runtime.inline import InlineExecutor
from tandem.runtime.machine import Machine
from tandem.runtime.machine_measures import EmulatedMeasures, HostMeasures
from tandem.runtime.measures import DeviceMeasures

if TYPE_CHECKING:
    from tandem.plan.executed_op import OpListener


@dataclass(frozen=True, slots=True)
class Assembled:
    """An executor and what it can tell about its device.

    Attributes:
        notes: what could not be had, one line each.
        ending: see `release`; None: the machine's memory goes with whoever holds it.
    """

    executor: Executor
    machine: Machine
    measures: DeviceMeasures
    notes: tuple[str, ...] = ()
    ending: Callable[[], None] | None = None

    @property
    def release(self) -> Callable[[], None]:
        """Frees memory that operations in flight may use; once, when the executor is closed. It
        holds nothing of the machine afterwards.
        """
        return self.machine.free if self.ending is None else self.ending


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
    from tandem.runtime.exact import ExactExecutor

    machine = build_machine(model, sizes, _stay)
    if sizes.graphs is not None:
        from tandem.runtime.graph_maker import EmulatedGraphs
        from tandem.runtime.record_graphs import record_graphs

        record_graphs(machine, model, sizes.graphs, sizes.page.block_size, EmulatedGraphs())
    measures = EmulatedMeasures(machine, model, f"emulated accelerator (exact, seed {seed})")
    return Assembled(ExactExecutor(machine, seed, listeners), machine, measures)


def _stay(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
