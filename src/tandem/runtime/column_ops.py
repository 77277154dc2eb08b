"""The maths of MLPs that CPU and accelerator compute together, in passes (ADR 0065, ADR 0079).

Either side makes its columns' part of the MLP's result, of the same residual, which stays on the
accelerator. The CPU's comes back there, where both are added, normed where the architecture norms
an MLP's result, and added to the residual. Where the CPU has attention's maps, too, the residual
stays there until a layer follows that the CPU has none of, and it is the accelerator's part that
crosses the link.
"""

from collections.abc import Callable

import torch

from tandem.models.host_layers import HostLayers
from tandem.models.layer_state import LayerState
from tandem.models.model import Model
from tandem.plan.program import OpKind, Part, Queue
from tandem.plan.template_builder import (
    COLUMN_SUM,
    FETCHED_COLUMNS,
    HOST_COLUMNS,
    HOST_STATE,
    STAGED_INPUT,
    STAGED_STATE,
    STATE,
)
from tandem.runtime.buffers import BufferSpace, Place
from tandem.runtime.host_copies import HostCopies
from tandem.runtime.lane_context import LaneContext
from tandem.runtime.lane_states import LaneStates
from tandem.runtime.running import Running


class ColumnOps:
    """Executes the operations of divided MLPs in `plan.block_cpu_layers`.

    Args:
        copies: over the link.
    """

    def __init__(self, model: Model, buffers: BufferSpace, copies: HostCopies) -> None:
        self._model, self._buffers, self._copies = model, buffers, copies
        self._on_host = LaneStates(buffers, HOST_STATE, Place.HOST)
        self._on_device = LaneStates(buffers, STATE, Place.DEVICE)
        self.table: dict[tuple[OpKind, Part, Queue], Callable[[Running], None]] = {
            (OpKind.STAGE, Part.COLUMNS, Queue.CPU): self._compute,
            (OpKind.STAGE, Part.COLUMNS, Queue.ACCEL): self._compute_others,
            (OpKind.STAGE, Part.OUTPUT, Queue.CPU): self._output,
            (OpKind.STAGE, Part.RESIDUAL, Queue.CPU): self._add_there,
        }

    @staticmethod
    def adds(running: Running) -> bool:
        """Whether what comes back from the CPU is a part of an MLP's result."""
        return any(ref.name == COLUMN_SUM for ref in running.op.reads)

    def add(self, running: Running) -> None:
        """Both parts, to the residual."""
        for lane in self._on_device.lanes(running):
            state = self._on_device.get(running, lane)
            branch = self._taken(running, COLUMN_SUM, lane)
            branch.add_(self._taken(running, STAGED_STATE, lane))
            self._model.add_branch(running.op.layer, branch, state)
            self._on_device.put(running, lane, state)

    def _compute(self, running: Running) -> None:
        layer = running.op.layer
        if not _touches(running, HOST_COLUMNS):
            self._on_host.run(running, lambda state: self._maths.columns(layer, state))
            return
        for lane in self._on_host.lanes(running):
            state = self._on_host.get(running, lane)
            made = LayerState(state.positions, state.residual)
            self._maths.columns(layer, made)
            self._put(running, HOST_COLUMNS, lane, made.residual, Place.HOST)

    def _compute_others(self, running: Running) -> None:
        for lane in self._on_device.lanes(running):
            state = self._on_device.get(running, lane)
            made = self._model.other_columns(running.op.layer, state)
            self._put(running, COLUMN_SUM, lane, made, Place.DEVICE)

    @property
    def _maths(self) -> HostLayers:
        assert self._model.host is not None
        return self._model.host

    # --- where the residual is the CPU's ----------------------------------------------------------

    def _output(self, running: Running) -> None:
        layer = running.op.layer
        self._on_host.run(running, lambda state: self._maths.output(layer, state))

    def bring(self, running: Running) -> bool:
        """Copy what the accelerator makes its columns of, or the CPU's columns; False: neither is
        what this operation copies.
        """
        if _touches(running, STAGED_INPUT):
            for lane in self._on_host.lanes(running):
                residual = self._on_host.get(running, lane).residual
                self._put(running, STAGED_INPUT, lane, self._bring(residual), Place.DEVICE)
            return True
        if not _touches(running, HOST_COLUMNS):
            return False
        for lane in self._on_host.lanes(running):
            made = self._bring(self._taken(running, HOST_COLUMNS, lane))
            self._put(running, STAGED_STATE, lane, made, Place.DEVICE)
            self._buffers.discard((HOST_STATE, lane.key), running.op.queue)
        return True

    def adopt(self, running: Running) -> bool:
        """Take what came, to make columns of; False: that is not what this operation does."""
        if not _touches(running, STAGED_INPUT):
            return False
        for lane in self._on_device.lanes(running):
            state = self._on_device.get(running, lane)
            state.residual = self._taken(running, STAGED_INPUT, lane)
            self._on_device.put(running, lane, state)
        return True

    def fetch(self, running: Running) -> bool:
        """Copy the accelerator's columns down; False: they are not what this operation copies."""
        if not _touches(running, FETCHED_COLUMNS):
            return False
        for lane in self._on_host.lanes(running):
            own = self._taken(running, COLUMN_SUM, lane)
            fetched = self._copies.fetched(own, self._maths.dtype)
            self._put(running, FETCHED_COLUMNS, lane, fetched, Place.HOST)
        return True

    def _bring(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._copies.brought(tensor, self._model.dtype)

    def _add_there(self, running: Running) -> None:
        for lane in self._on_host.lanes(running):
            state = self._on_host.get(running, lane)
            branch = self._taken(running, FETCHED_COLUMNS, lane)
            branch.add_(self._taken(running, HOST_COLUMNS, lane))
            self._maths.add_branch(running.op.layer, branch, state)
            self._on_host.put(running, lane, state)

    # --- buffers ----------------------------------------------------------------------------------

    def _taken(self, running: Running, name: str, lane: LaneContext) -> torch.Tensor:
        """A buffer that nothing else is to read."""
        value = self._buffers.get((name, lane.key), running.op.queue, running)
        assert isinstance(value, tuple)
        self._buffers.discard((name, lane.key), running.op.queue)
        return value[0]

    def _put(
        self, running: Running, name: str, lane: LaneContext, value: torch.Tensor, place: Place
    ) -> None:
        self._buffers.put((name, lane.key), place, (value,), running.op.queue)


def _touches(running: Running, name: str) -> bool:
    return any(ref.name == name for ref in (*running.op.reads, *running.op.writes))
