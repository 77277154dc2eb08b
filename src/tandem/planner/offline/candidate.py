"""One way to run an offline batch."""

import math
from dataclasses import dataclass, replace
from typing import Literal

from tandem.plan.block_order import BlockOrder, order_of
from tandem.plan.block_shape import BlockShape
from tandem.plan.offline import QuantizedLayers
from tandem.plan.sweep_layers import SweepLayers, spread_among
from tandem.plan.weights import (
    STREAM_SLOTS,
    Home,
    StreamedLayers,
    WeightPlacement,
    as_runs,
    streamed_layers,
)
from tandem.planner.elsewhere import CpuHome, Elsewhere
from tandem.spec.kv_type import CodeType

KVInFewBits = Literal["none", "host", "all"]
"""Which of KV is: that on the host, or on the accelerator, too."""


@dataclass(frozen=True, slots=True)
class BlockCandidate:
    """Numbers of sequences are those of one batch.

    Attributes:
        streamed: layers whose weights come to the accelerator in every pass.
        resident_rows: KV on the accelerator. streamed_rows: on the host, brought in every layer.
            cpu_rows: on the host, attended there.
        recomputed_tokens: of each streamed sequence, kept as activations.
        quantized: layers whose maps are in few bits. host_kv: KV on the host in few bits.
            device_kv: KV on the accelerator, where that on the host is in the same.
        on_disk: of the streamed layers, those that are read from disk before they come.
        mlps: of the streamed layers that are not on disk only the MLPs are; the rest is resident.
        lent: of the streamed layers, or MLPs, that are not on disk, those that the CPU computes in
            passes over tokens.
        columns: of each MLP that comes in passes over tokens, those that the CPU computes.
        attention_maps: of the same layers, those of attention are the CPU's, too.
    """

    batches: int
    streamed: int
    resident_rows: int
    streamed_rows: int
    cpu_rows: int
    recomputed_tokens: int = 0
    quantized: QuantizedLayers = "none"
    host_kv: CodeType | None = None
    on_disk: int = 0
    mlps: bool = False
    lent: int = 0
    columns: int = 0
    attention_maps: bool = False
    device_kv: CodeType | None = None

    @property
    def kv_in_few_bits(self) -> KVInFewBits:
        """Which of its KV is."""
        if self.device_kv is not None:
            return "all"
        return "none" if self.host_kv is None else "host"

    @property
    def rows(self) -> int:
        """Sequences of a batch."""
        return self.resident_rows + self.streamed_rows + self.cpu_rows

    @property
    def block_rows(self) -> int:
        """Sequences of a block."""
        return self.rows * self.batches

    @property
    def order(self) -> BlockOrder:
        """In which its batches go through layers."""
        return order_of(self.batches)

    @property
    def host_rows(self) -> int:
        """Those with KV on the host."""
        return self.streamed_rows + self.cpu_rows

    def shared(self, resident: int, cpu: int) -> "BlockCandidate":
        """As many sequences with their KV elsewhere; nothing is recomputed."""
        streamed = self.rows - resident - cpu
        return replace(
            self, resident_rows=resident, streamed_rows=streamed, cpu_rows=cpu, recomputed_tokens=0
        )

    def left(self, sequences: float) -> "BlockCandidate":
        """When a block has only so many sequences left: of every batch and home as many shares of
        them, in whole ones.
        """
        rows = math.ceil(sequences / self.batches)
        if rows >= self.rows:
            return self
        streamed, cpu = (rows * home // self.rows for home in (self.streamed_rows, self.cpu_rows))
        made = self.recomputed_tokens if streamed else 0
        resident = rows - streamed - cpu
        fewer = replace(self, resident_rows=resident, streamed_rows=streamed, cpu_rows=cpu)
        return replace(fewer, recomputed_tokens=made)

    def undivided(self) -> "BlockCandidate":
        """With no part of a layer that comes on the CPU."""
        return replace(self, columns=0, attention_maps=False)

    @property
    def stays(self) -> bool:
        """Whether the CPU computes all that is streamed but what stays in the slots."""
        return self.lent > 0 and self.lent == self.streamed - STREAM_SLOTS and not self.on_disk

    def placement(self, num_layers: int) -> tuple[WeightPlacement, ...]:
        """Homes of all layers, spread evenly. Where the CPU has all but what stays in the slots,
        and several batches, what stays comes first and the CPU's begin behind it: nothing hides
        the first batch's way there.
        """
        if not self.stays or self.batches == 1:
            return self._elsewhere.placement(num_layers)
        behind = range(STREAM_SLOTS + 1, num_layers)
        resident = spread_among(behind, num_layers - self.streamed)
        away: Home = "host-mlp" if self.mlps else "host"
        return as_runs("resident" if n in resident else away for n in range(num_layers))

    def cpu_mlps(self, num_layers: int) -> tuple[int, ...]:
        """Layers whose MLPs the CPU computes in passes, ascending."""
        return self._passes(streamed_layers(self.placement(num_layers))).mlp_on_cpu

    def cpu_layers(self, num_layers: int) -> tuple[int, ...]:
        """Likewise, whole ones."""
        return self._passes(streamed_layers(self.placement(num_layers))).on_cpu

    def _passes(self, weights: StreamedLayers) -> SweepLayers:
        plain = SweepLayers(weights)
        return self._elsewhere.lend(plain) if self.lent else plain

    def shape(
        self,
        num_layers: int,
        *,
        prompts_on_host: bool = False,
        layers_overlap: bool = False,
        weights_in_parts: bool = False,
    ) -> BlockShape:
        """What its programs depend on."""
        weights = streamed_layers(self.placement(num_layers))
        shape = self.with_weights(num_layers, weights, prompts_on_host=prompts_on_host)
        return replace(shape, layers_overlap=layers_overlap, weights_in_parts=weights_in_parts)

    def with_weights(
        self, num_layers: int, weights: StreamedLayers, *, prompts_on_host: bool = False
    ) -> BlockShape:
        """The same, if its layers are known already."""
        passes = self._passes(weights)
        return BlockShape(
            num_layers=num_layers,
            batches=self.batches,
            weights=weights,
            resident=self.resident_rows > 0,
            streamed=self.streamed_rows > 0,
            cpu=self.cpu_rows > 0,
            recomputes=self.recomputed_tokens > 0,
            prompts_on_host=prompts_on_host,
            mlps_on_cpu=passes.mlp_on_cpu,
            layers_on_cpu=passes.on_cpu,
            columns_on_cpu=self.columns > 0,
            attention_maps_on_cpu=self.attention_maps,
        )

    def describe(self, num_layers: int) -> str:
        """One line for people."""
        weights = self._elsewhere.describe(num_layers)
        if self.quantized != "none":
            weights += f" ({self.quantized} in few bits)"
        if self.columns:
            maps = "attention's maps and " if self.attention_maps else ""
            columns = f"{maps}{self.columns} columns of each MLP"
            weights += f" and {columns} on the CPU where no prompt is read"
        kv = [
            (self.resident_rows, "KV on the accelerator"),
            (self.streamed_rows, self._streams()),
            (self.cpu_rows, "attended on the CPU"),
        ]
        homes = ", ".join(f"{rows} {where}" for rows, where in kv if rows)
        batches = "1 batch" if self.batches == 1 else f"{self.batches} batches"
        kept = {"none": "", "host": f", KV on the host in {self.host_kv}"}
        bits = kept.get(self.kv_in_few_bits, f", all KV in {self.device_kv}")
        return f"{weights}; {batches} of {self.rows}: {homes}{bits}"

    @property
    def _elsewhere(self) -> Elsewhere:
        how: CpuHome = "host" if self.lent else "cpu"
        return Elsewhere(self.streamed, self.lent, how, self.on_disk, self.mlps)

    def _streams(self) -> str:
        if not self.recomputed_tokens:
            return "streamed"
        return f"streamed with {self.recomputed_tokens} tokens recomputed"
