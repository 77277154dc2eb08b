"""A pass's operations in layers, MLPs, and parts of layers, that the CPU computes (ADR 0039).

The CPU works on one batch while the accelerator works on others. A batch's residual comes to the
host where such a layer or MLP begins, if it is not there, and goes back when the batch is wanted on
the accelerator next. Attention stays where keys and values lie: queries, keys and values of such a
layer go up where the accelerator attends to any sequence of the batch, and its result comes down.
Of a layer whose MLP is divided, the CPU may have attention's maps, too: then the residual stays
there, and goes up for the accelerator's columns, whose sum comes down (ADR 0079).
"""

from collections.abc import Iterator

from tandem.plan.block_shape import BlockShape
from tandem.plan.program import BufferRef, OpKind, Part, Queue, SignalRef, buffer
from tandem.plan.template_builder import (
    COLUMN_SUM,
    DEVICE_PARTIAL,
    FETCHED_COLUMNS,
    FETCHED_PARTIAL,
    HOST_COLUMNS,
    HOST_PARTIAL,
    HOST_QKV,
    HOST_STATE,
    QKV,
    STAGED_INPUT,
    STAGED_STATE,
    STATE,
    TemplateBuilder,
)


class BlockCpuLayers:
    """Adds these operations to a pass."""

    def __init__(self, builder: TemplateBuilder, shape: BlockShape) -> None:
        self._b, self._shape = builder, shape
        self._whole = frozenset(shape.layers_on_cpu)
        self._divided, self._cut = frozenset(shape.divided), frozenset(shape.cut)
        self._ends = self._whole | frozenset(shape.mlps_on_cpu) | self._divided
        self._computed: dict[int, SignalRef] = {}  # by batch: its residual is made, on the host
        self._own: dict[int, SignalRef] = {}  # by batch: the accelerator's columns are

    def has(self, layer: int) -> bool:
        """Whether the CPU computes a layer's maps around attention."""
        return layer in self._whole or layer in self._cut

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
        lanes, there = (batch,), buffer(HOST_STATE, batch)
        if layer - 1 in self._cut:
            self._add_own_columns(layer - 1, batch)
        waits = () if layer - 1 in self._ends else (self._fetch(layer, batch),)
        for_host = (buffer(HOST_QKV, batch),) if self._shape.cpu else ()
        computed = self._b.add(
            OpKind.STAGE, Queue.CPU, Part.PRE, lanes=lanes, layer=layer, waits=waits,
            reads=(there,), writes=(there, *for_host),
        )  # fmt: skip
        if not self._shape.attends:
            return ()
        brought = self._b.add(
            OpKind.COPY, Queue.H2D, Part.QKV, lanes=lanes, layer=layer, waits=(computed,),
            reads=(there,), writes=(buffer(QKV, batch),),
        )  # fmt: skip
        return (brought,)

    def after_attention(self, layer: int, batch: int, attended: SignalRef | None) -> None:
        """All parts of its result, and the rest of the layer.

        Args:
            attended: when the accelerator has done its part; None: it has none.
        """
        lanes, there = (batch,), buffer(HOST_STATE, batch)
        parts = (buffer(HOST_PARTIAL, batch),) if self._shape.cpu else ()
        waits: tuple[SignalRef, ...] = ()
        if attended is not None:
            fetched = buffer(FETCHED_PARTIAL, batch)
            parts = (fetched, *parts)
            copied = self._b.add(
                OpKind.COPY, Queue.D2H, Part.PARTIAL, lanes=lanes, layer=layer, waits=(attended,),
                reads=(buffer(DEVICE_PARTIAL, batch),), writes=(fetched,),
            )  # fmt: skip
            waits = (copied,)
        self._b.add(
            OpKind.MERGE, Queue.CPU, lanes=lanes, layer=layer, waits=waits, reads=parts,
            writes=(there,),
        )  # fmt: skip
        if layer in self._cut:
            self._divide(layer, batch)
            return
        self._computed[batch] = self._b.add(
            OpKind.STAGE, Queue.CPU, Part.POST, lanes=lanes, layer=layer, reads=(there,),
            writes=(there,),
        )  # fmt: skip

    def _divide(self, layer: int, batch: int) -> None:
        """Attention's output on the CPU, the residual up for the accelerator's columns, and the
        CPU's, which wait for nothing.
        """
        lanes, there = (batch,), buffer(HOST_STATE, batch)
        staged = buffer(STAGED_INPUT, batch)
        made = self._b.add(
            OpKind.STAGE, Queue.CPU, Part.OUTPUT, lanes=lanes, layer=layer, reads=(there,),
            writes=(there,),
        )  # fmt: skip
        brought = self._b.add(
            OpKind.COPY, Queue.H2D, Part.RESIDUAL, lanes=lanes, layer=layer, waits=(made,),
            reads=(there,), writes=(staged,),
        )  # fmt: skip
        self._b.add(
            OpKind.STAGE, Queue.ACCEL, Part.RESIDUAL, lanes=lanes, layer=layer, waits=(brought,),
            reads=(staged,), writes=(buffer(STATE, batch),),
        )  # fmt: skip
        self._computed[batch] = self._b.add(
            OpKind.STAGE, Queue.CPU, Part.COLUMNS, lanes=lanes, layer=layer, reads=(there,),
            writes=(buffer(HOST_COLUMNS, batch),),
        )  # fmt: skip

    def _add_own_columns(self, layer: int, batch: int) -> None:
        """End such a layer on the CPU, which has the next one's maps, too."""
        lanes, there = (batch,), buffer(HOST_STATE, batch)
        fetched = buffer(FETCHED_COLUMNS, batch)
        came = self._b.add(
            OpKind.COPY, Queue.D2H, Part.RESIDUAL, lanes=lanes, layer=layer,
            waits=(self._own[batch],), reads=(buffer(COLUMN_SUM, batch),), writes=(fetched,),
        )  # fmt: skip
        self._b.add(
            OpKind.STAGE, Queue.CPU, Part.RESIDUAL, lanes=lanes, layer=layer, waits=(came,),
            reads=(there, buffer(HOST_COLUMNS, batch), fetched), writes=(there,),
        )  # fmt: skip

    def mlp(self, layer: int, batch: int, weights: tuple[BufferRef, ...] = ()) -> None:
        """The end of a layer of which the CPU computes the MLP alone, or some of its columns.

        Args:
            weights: what `OUTPUT` reads of the layer, if it came.
        """
        state, there = buffer(STATE, batch), buffer(HOST_STATE, batch)
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
        self._own[batch] = self._b.add(
            OpKind.STAGE, Queue.ACCEL, Part.COLUMNS, lanes=(batch,), layer=layer, waits=waits,
            reads=(buffer(STATE, batch), *weights), writes=(buffer(COLUMN_SUM, batch),),
        )  # fmt: skip

    def bring_back(self, layer: int, batch: int) -> None:
        """What the CPU has made of a batch in a layer, if it has; not before it is wanted, since
        copies to the accelerator that are wanted sooner would wait behind it.
        """
        if layer not in self._ends:
            return
        lanes, staged = (batch,), buffer(STAGED_STATE, batch)
        made = buffer(HOST_COLUMNS if layer in self._cut else HOST_STATE, batch)
        brought = self._b.add(
            OpKind.COPY, Queue.H2D, Part.RESIDUAL, lanes=lanes, layer=layer,
            waits=(self._computed[batch],), reads=(made,), writes=(staged,),
        )  # fmt: skip
        state, own = buffer(STATE, batch), buffer(COLUMN_SUM, batch)
        reads = (staged, state, own) if layer in self._divided else (staged,)
        self._b.add(
            OpKind.STAGE, Queue.ACCEL, Part.RESIDUAL, lanes=lanes, layer=layer, waits=(brought,),
            reads=reads, writes=(state,),
        )  # fmt: skip

    def _fetch(self, layer: int, batch: int) -> SignalRef:
        return self._b.add(
            OpKind.COPY, Queue.D2H, Part.RESIDUAL, lanes=(batch,), layer=layer,
            waits=(self._b.reached(Queue.ACCEL),), reads=(buffer(STATE, batch),),
            writes=(buffer(HOST_STATE, batch),),
        )  # fmt: skip
