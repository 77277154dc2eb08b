"""A pass's operations in layers, and in MLPs, that are computed on the CPU (ADR 0039).

The CPU works on one batch while the accelerator works on others. A batch's residual comes to the
host where such a layer or MLP begins, if it is not there, and goes back when the batch is wanted on
the accelerator next. Attention stays where keys and values lie: queries, keys and values of such a
layer go up where the accelerator attends to any sequence of the batch, and its result comes down.
"""

from collections.abc import Iterator

from tandem.plan.block_shape import BlockShape
from tandem.plan.program import BufferRef, OpKind, Part, Queue, SignalRef
from tandem.plan.template_builder import (
    COLUMN_SUM,
    DEVICE_PARTIAL,
    FETCHED_PARTIAL,
    HOST_PARTIAL,
    HOST_QKV,
    HOST_STATE,
    QKV,
    STAGED_STATE,
    STATE,
    TemplateBuilder,
)


class BlockCpuLayers:
    """Adds these operations to a pass."""

    def __init__(self, builder: TemplateBuilder, shape: BlockShape) -> None:
        self._b, self._shape = builder, shape
        self._whole = frozenset(shape.layers_on_cpu)
        self._divided = frozenset(shape.divided)
        self._ends = self._whole | frozenset(shape.mlps_on_cpu) | self._divided
        self._computed: dict[int, SignalRef] = {}  # by batch: its residual is made, on the host

    def has(self, layer: int) -> bool:
        """Whether the CPU computes a whole layer."""
        return layer in self._whole

    def runs(self) -> Iterator[tuple[int, ...]]:
        """All layers in order, up to each that the CPU has a part in; the last may lack one."""
        run: list[int] = []
        for layer in range(self._shape.num_layers):
            run.append(layer)
            if layer in self._ends:
                yield tuple(run)
                run = []
        if run:
            yield tuple(run)

    def before_attention(self, layer: int, batch: int) -> tuple[SignalRef, ...]:
        """Queries, keys and values, for whoever attends. Those of the layer before are free: the
        residual has come to the host behind them.

        Returns:
            When they are on the accelerator, if it attends.
        """
        lanes, there = (batch,), BufferRef(HOST_STATE, batch)
        waits = () if layer - 1 in self._ends else (self._fetch(layer, batch),)
        for_host = (BufferRef(HOST_QKV, batch),) if self._shape.cpu else ()
        computed = self._b.add(
            OpKind.STAGE, Queue.CPU, Part.PRE, lanes=lanes, layer=layer, waits=waits,
            reads=(there,), writes=(there, *for_host),
        )  # fmt: skip
        if not self._shape.attends:
            return ()
        brought = self._b.add(
            OpKind.COPY, Queue.H2D, Part.QKV, lanes=lanes, layer=layer, waits=(computed,),
            reads=(there,), writes=(BufferRef(QKV, batch),),
        )  # fmt: skip
        return (brought,)

    def after_attention(self, layer: int, batch: int, attended: SignalRef | None) -> None:
        """All parts of its result, and the rest of the layer.

        Args:
            attended: when the accelerator has done its part; None: it has none.
        """
        lanes, there = (batch,), BufferRef(HOST_STATE, batch)
        parts = (BufferRef(HOST_PARTIAL, batch),) if self._shape.cpu else ()
        waits: tuple[SignalRef, ...] = ()
        if attended is not None:
            fetched = BufferRef(FETCHED_PARTIAL, batch)
            parts = (fetched, *parts)
            copied = self._b.add(
                OpKind.COPY, Queue.D2H, Part.PARTIAL, lanes=lanes, layer=layer, waits=(attended,),
                reads=(BufferRef(DEVICE_PARTIAL, batch),), writes=(fetched,),
            )  # fmt: skip
            waits = (copied,)
        self._b.add(
            OpKind.MERGE, Queue.CPU, lanes=lanes, layer=layer, waits=waits, reads=parts,
            writes=(there,),
        )  # fmt: skip
        self._computed[batch] = self._b.add(
            OpKind.STAGE, Queue.CPU, Part.POST, lanes=lanes, layer=layer, reads=(there,),
            writes=(there,),
        )  # fmt: skip

    def mlp(self, layer: int, batch: int, weights: tuple[BufferRef, ...] = ()) -> None:
        """The end of a layer of which the CPU computes the MLP alone, or some of its columns.

        Args:
            weights: what `OUTPUT` reads of the layer, if it came.
        """
        state, there = BufferRef(STATE, batch), BufferRef(HOST_STATE, batch)
        self._b.add(
            OpKind.STAGE, Queue.ACCEL, Part.OUTPUT, lanes=(batch,), layer=layer,
            reads=(state, *weights), writes=(state,),
        )  # fmt: skip
        fetched = self._fetch(layer, batch)
        part = Part.COLUMNS if layer in self._divided else Part.MLP
        self._computed[batch] = self._b.add(
            OpKind.STAGE, Queue.CPU, part, lanes=(batch,), layer=layer, waits=(fetched,),
            reads=(there,), writes=(there,),
        )  # fmt: skip

    def columns(
        self, layer: int, batch: int, waits: tuple[SignalRef, ...], weights: tuple[BufferRef, ...]
    ) -> None:
        """Of a divided MLP, the accelerator's columns.

        Args:
            waits: for its weights.
        """
        self._b.add(
            OpKind.STAGE, Queue.ACCEL, Part.COLUMNS, lanes=(batch,), layer=layer, waits=waits,
            reads=(BufferRef(STATE, batch), *weights), writes=(BufferRef(COLUMN_SUM, batch),),
        )  # fmt: skip

    def bring_back(self, layer: int, batch: int) -> None:
        """What the CPU has made of a batch in a layer, if it has; not before it is wanted, since
        copies to the accelerator that are wanted sooner would wait behind it.
        """
        if layer not in self._ends:
            return
        lanes, staged = (batch,), BufferRef(STAGED_STATE, batch)
        brought = self._b.add(
            OpKind.COPY, Queue.H2D, Part.RESIDUAL, lanes=lanes, layer=layer,
            waits=(self._computed[batch],), reads=(BufferRef(HOST_STATE, batch),), writes=(staged,),
        )  # fmt: skip
        state, own = BufferRef(STATE, batch), BufferRef(COLUMN_SUM, batch)
        reads = (staged, state, own) if layer in self._divided else (staged,)
        self._b.add(
            OpKind.STAGE, Queue.ACCEL, Part.RESIDUAL, lanes=lanes, layer=layer, waits=(brought,),
            reads=reads, writes=(state,),
        )  # fmt: skip

    def _fetch(self, layer: int, batch: int) -> SignalRef:
        return self._b.add(
            OpKind.COPY, Queue.D2H, Part.RESIDUAL, lanes=(batch,), layer=layer,
            waits=(self._b.reached(Queue.ACCEL),), reads=(BufferRef(STATE, batch),),
            writes=(BufferRef(HOST_STATE, batch),),
        )  # fmt: skip
