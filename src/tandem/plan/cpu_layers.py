"""A sweep's operations in layers, and in MLPs, that are computed on the CPU (ADR 0014, 0016, 0018).

Stages run where the weights lie, attention where the KV lies. So the residual comes to the host
before such a layer; keys in the host's tier are attended to there and then, and for those in the
accelerator's, queries go up and the result comes down. A layer on disk gives its slot back when it
has been computed.
"""

from tandem.plan.disk_reads import DiskReads
from tandem.plan.program import EventKind, LaneShape, OpKind, Part, Queue, SignalRef, buffer
from tandem.plan.template_builder import (
    DEVICE_PARTIAL,
    EXPERT_SUM,
    FETCHED_PARTIAL,
    HOST_PARTIAL,
    HOST_QKV,
    HOST_STATE,
    STAGED_QKV,
    STAGED_STATE,
    STATE,
    TemplateBuilder,
    pages,
)
from tandem.spec.tier import Tier


class CpuLayers:
    """Adds the operations of such layers to a template, for whole runs of them."""

    def __init__(
        self, builder: TemplateBuilder, lanes: tuple[LaneShape, ...], disk: DiskReads
    ) -> None:
        self._b = builder
        self._lanes = lanes
        self._disk = disk

    def layer(self, layer: int, lanes: tuple[int, ...], *, first: bool, last: int) -> None:
        """One layer of `lanes`.

        Args:
            first: the residuals are still on the accelerator.
            last: number of the model's last layer.
        """
        read, weights = self._disk.source(layer)
        if not lanes:  # its turn in the circle comes all the same
            self._disk.used(layer, self._b.reached(Queue.CPU))
            return
        waits = ((self._fetch(layer, lanes),) if first else ()) + read
        states = tuple(buffer(HOST_STATE, i) for i in lanes)
        for_host = tuple(buffer(HOST_QKV, i) for i in lanes if self._lanes[i].host)
        computed = self._b.add(
            OpKind.STAGE, Queue.CPU, Part.PRE, lanes=lanes, layer=layer, waits=waits,
            reads=states + weights, writes=states + for_host,
        )  # fmt: skip
        # the accelerator's part first, so that it runs beside the host's
        fetched = {i: self._on_device(layer, i, computed) for i in lanes if self._lanes[i].device}
        for i in lanes:
            if self._lanes[i].host:
                self._on_host(layer, i)
        for i in lanes:
            self._merge(layer, i, (fetched[i],) if i in fetched else ())
        done = self._b.add(
            OpKind.STAGE, Queue.CPU, Part.POST, lanes=lanes, layer=layer, reads=states + weights,
            writes=states, event=EventKind.LANE_DONE if layer == last else None,
        )  # fmt: skip
        self._disk.used(layer, done)

    def mlp(self, layer: int, lanes: tuple[int, ...], *, last: int) -> None:
        """The end of a layer of `lanes`, from the norm before its MLP on; the residuals are on the
        accelerator.
        """
        if not lanes:
            return
        self._mlp(layer, lanes, self._fetch(layer, lanes), last=last)

    def experts(self, layer: int, lanes: tuple[int, ...], *, last: int) -> None:
        """Likewise of a mixture that both compute: tokens are routed, and each side adds up its own
        experts' results, at the same time.
        """
        if not lanes:
            return
        fetched = self._fetch(layer, lanes, Part.ROUTE)
        self._b.add(
            OpKind.STAGE, Queue.ACCEL, Part.EXPERTS, lanes=lanes, layer=layer,
            reads=tuple(buffer(STATE, i) for i in lanes),
            writes=tuple(buffer(EXPERT_SUM, i) for i in lanes),
        )  # fmt: skip
        self._mlp(layer, lanes, fetched, last=last)
        self.leave(layer, lanes, shared=True)

    def _mlp(self, layer: int, lanes: tuple[int, ...], fetched: SignalRef, *, last: int) -> None:
        states = tuple(buffer(HOST_STATE, i) for i in lanes)
        self._b.add(
            OpKind.STAGE, Queue.CPU, Part.MLP, lanes=lanes, layer=layer, waits=(fetched,),
            reads=states, writes=states, event=EventKind.LANE_DONE if layer == last else None,
        )  # fmt: skip

    def leave(self, layer: int, lanes: tuple[int, ...], *, shared: bool = False) -> None:
        """Bring the residuals back after a run; the accelerator takes them over in its turn, so
        that the next sweep cannot overtake this one.

        Args:
            shared: it adds what its own experts have given.
        """
        if not lanes:
            return
        staged = tuple(buffer(STAGED_STATE, i) for i in lanes)
        sums = tuple(buffer(EXPERT_SUM, i) for i in lanes)
        brought = self._b.add(
            OpKind.COPY, Queue.H2D, Part.RESIDUAL, lanes=lanes, layer=layer,
            waits=(self._b.reached(Queue.CPU),),
            reads=tuple(buffer(HOST_STATE, i) for i in lanes), writes=staged,
        )  # fmt: skip
        self._b.add(
            OpKind.STAGE, Queue.ACCEL, Part.RESIDUAL, lanes=lanes, layer=layer, waits=(brought,),
            reads=staged + (sums if shared else ()),
            writes=tuple(buffer(STATE, i) for i in lanes),
        )  # fmt: skip

    def _fetch(self, layer: int, lanes: tuple[int, ...], part: Part = Part.RESIDUAL) -> SignalRef:
        return self._b.add(
            OpKind.COPY, Queue.D2H, part, lanes=lanes, layer=layer,
            waits=(self._b.reached(Queue.ACCEL),),
            reads=tuple(buffer(STATE, i) for i in lanes),
            writes=tuple(buffer(HOST_STATE, i) for i in lanes),
        )  # fmt: skip

    def _on_device(self, layer: int, i: int, computed: SignalRef) -> SignalRef:
        staged = self._b.add(
            OpKind.COPY, Queue.H2D, Part.QKV, lanes=(i,), layer=layer, waits=(computed,),
            reads=(buffer(HOST_STATE, i),), writes=(buffer(STAGED_QKV, i),),
        )  # fmt: skip
        self._b.add(
            OpKind.APPEND, Queue.ACCEL, lanes=(i,), layer=layer, tier=Tier.DEVICE, waits=(staged,),
            reads=(buffer(STAGED_QKV, i),), writes=(pages(Tier.DEVICE, layer),),
        )  # fmt: skip
        attended = self._b.add(
            OpKind.ATTEND, Queue.ACCEL, lanes=(i,), layer=layer, tier=Tier.DEVICE,
            reads=(buffer(STAGED_QKV, i), pages(Tier.DEVICE, layer)),
            writes=(buffer(DEVICE_PARTIAL, i),),
        )  # fmt: skip
        return self._b.add(
            OpKind.COPY, Queue.D2H, Part.PARTIAL, lanes=(i,), layer=layer, waits=(attended,),
            reads=(buffer(DEVICE_PARTIAL, i),), writes=(buffer(FETCHED_PARTIAL, i),),
        )  # fmt: skip

    def _on_host(self, layer: int, i: int) -> None:
        self._b.add(
            OpKind.APPEND, Queue.CPU, lanes=(i,), layer=layer, tier=Tier.HOST,
            reads=(buffer(HOST_QKV, i),), writes=(pages(Tier.HOST, layer),),
        )  # fmt: skip
        self._b.add(
            OpKind.ATTEND, Queue.CPU, lanes=(i,), layer=layer, tier=Tier.HOST,
            reads=(buffer(HOST_QKV, i), pages(Tier.HOST, layer)),
            writes=(buffer(HOST_PARTIAL, i),),
        )  # fmt: skip

    def _merge(self, layer: int, i: int, waits: tuple[SignalRef, ...]) -> None:
        parts = (buffer(FETCHED_PARTIAL, i),) if self._lanes[i].device else ()
        parts += (buffer(HOST_PARTIAL, i),) if self._lanes[i].host else ()
        self._b.add(
            OpKind.MERGE, Queue.CPU, lanes=(i,), layer=layer, waits=waits,
            reads=parts, writes=(buffer(HOST_STATE, i),),
        )  # fmt: skip
