"""The maths of MLPs that CPU and accelerator compute together, in a block's passes (ADR 0065).

Either side makes its columns' part of the MLP's result, of the same residual, which stays on the
accelerator. The CPU's comes back there, where both are added, normed where the architecture norms
an MLP's result, and added to the residual.
"""

from collections.abc import Callable

import torch

from tandem.models.host_layers import HostLayers
from tandem.models.model import Model
from tandem.plan.program import OpKind, Part, Queue
from tandem.plan.template_builder import COLUMN_SUM, HOST_STATE, STAGED_STATE, STATE
from tandem.runtime.buffers import BufferSpace, Place
from tandem.runtime.lane_context import LaneContext
from tandem.runtime.lane_states import LaneStates
from tandem.runtime.running import Running


class ColumnOps:
    """Executes the operations of divided MLPs in `plan.block_cpu_layers`."""

    def __init__(self, model: Model, buffers: BufferSpace) -> None:
        self._model, self._buffers = model, buffers
        self._on_host = LaneStates(buffers, HOST_STATE, Place.HOST)
        self._on_device = LaneStates(buffers, STATE, Place.DEVICE)
        self.table: dict[tuple[OpKind, Part, Queue], Callable[[Running], None]] = {
            (OpKind.STAGE, Part.COLUMNS, Queue.CPU): self._compute,
            (OpKind.STAGE, Part.COLUMNS, Queue.ACCEL): self._compute_others,
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
        self._on_host.run(running, lambda state: self._maths.columns(layer, state))

    def _compute_others(self, running: Running) -> None:
        for lane in self._on_device.lanes(running):
            state = self._on_device.get(running, lane)
            made = self._model.other_columns(running.op.layer, state)
            key, queue = (COLUMN_SUM, lane.key), running.op.queue
            self._buffers.put(key, Place.DEVICE, (made,), queue)

    @property
    def _maths(self) -> HostLayers:
        assert self._model.host is not None
        return self._model.host

    def _taken(self, running: Running, name: str, lane: LaneContext) -> torch.Tensor:
        """A buffer that nothing else is to read."""
        value = self._buffers.get((name, lane.key), running.op.queue, running)
        assert isinstance(value, tuple)
        self._buffers.discard((name, lane.key), running.op.queue)
        return value[0]
