"""Which of a model's layers are not resident: streamed, on disk, and what the CPU computes."""

from collections.abc import Collection, Iterator, Mapping
from typing import Literal, NamedTuple

from tandem.plan.sweep_layers import CpuRule, SweepChoice, SweepLayers, spread_among
from tandem.plan.weights import (
    MLPS_APART,
    ON_DISK,
    STREAM_SLOTS,
    Home,
    StreamedLayers,
    WeightPlacement,
    as_runs,
    stream_slots,
    streamed_among,
)

CpuHome = Literal["host", "cpu", "cpu-mlp"]
CPU_HOMES: tuple[CpuHome, ...] = ("host", "cpu", "cpu-mlp")


class Elsewhere(NamedTuple):
    """Layers that are not, or not whole, in the memory where the maths is done.

    Attributes:
        streamed: that go through the accelerator's slots, or whose MLPs do.
        on_cpu: that the CPU computes, by `how`: `host`: of the streamed ones, in sweeps without
            prompts; `cpu`: others, always; `cpu-mlp`: the MLPs of others, always.
        on_disk: that are read in every sweep: of the streamed ones; where none is, of those that
            the CPU computes; on the host alone, of all.
        mlps: of the streamed ones that are not on disk, only the MLPs, or the experts, are
            streamed, or computed on the CPU; the rest is resident.
        embedding: the token embeddings are in host memory, too.
        experts: of each mixture that is elsewhere, those that are resident all the same; 0: none,
            and the accelerator does not route.
    """

    streamed: int = 0
    on_cpu: int = 0
    how: CpuHome = "cpu"
    on_disk: int = 0
    mlps: bool = False
    embedding: bool = False
    experts: int = 0

    @property
    def whole_on_cpu(self) -> int:
        """Layers that are never on the accelerator."""
        return self.on_cpu if self.how == "cpu" else 0

    @property
    def mlps_on_cpu(self) -> int:
        """Layers whose MLP is never on the accelerator."""
        return self.on_cpu if self.how == "cpu-mlp" else 0

    @property
    def mlps_streamed(self) -> int:
        """Layers whose MLP goes through the slots."""
        return self.streamed - self._on_their_way if self.mlps else 0

    @property
    def mlps_away(self) -> int:
        """Layers of which all but the MLP is resident."""
        return self.mlps_on_cpu + self.mlps_streamed

    @property
    def lent(self) -> int:
        """Streamed layers that the CPU computes where no prompt is read."""
        return self.on_cpu if self.how == "host" else 0

    @property
    def read_in_place(self) -> int:
        """Layers on disk that are computed where they are read to: on the host alone."""
        return 0 if self.streamed or self.on_cpu else self.on_disk

    @property
    def read_on_cpu(self) -> int:
        """Layers on disk that the CPU computes beside an accelerator."""
        return 0 if self.streamed or not self.on_cpu else self.on_disk

    @property
    def in_host(self) -> int:
        """Whole layers in host memory beside an accelerator."""
        held_for_cpu = self.whole_on_cpu - self.read_on_cpu
        return self._whole_streamed - self._on_their_way + held_for_cpu

    @property
    def away(self) -> int:
        """Whole layers that are not resident."""
        return self._whole_streamed + self.whole_on_cpu + self.read_in_place

    @property
    def not_resident(self) -> int:
        """Layers that are not, or not whole."""
        return self.away + self.mlps_away

    @property
    def _whole_streamed(self) -> int:
        return self._on_their_way if self.mlps else self.streamed

    def lending(self, count: int) -> "Elsewhere":
        """The same streamed ones, as many of them lent as may be up to `count`."""
        on_disk = 0 if self.read_on_cpu else self.on_disk
        on_its_way = on_disk if self.streamed else 0
        count = max(0, min(count, self.streamed - max(STREAM_SLOTS, on_its_way)))
        return Elsewhere(
            self.streamed, count, "host" if count else "cpu", on_disk, self.mlps, self.embedding,
            self.experts,
        )  # fmt: skip

    @property
    def may_be_lent(self) -> int:
        """Of the streamed layers: not those that stay in the slots, nor those on disk."""
        return max(0, self.streamed - max(STREAM_SLOTS, self._on_their_way))

    @property
    def _on_their_way(self) -> int:
        """Layers on disk that are brought to the accelerator."""
        return self.on_disk if self.streamed else 0

    def placement(
        self, num_layers: int, fixed: Collection[int] = ()
    ) -> tuple[WeightPlacement, ...]:
        """Homes of all layers, spread evenly, so that one comes while others compute.

        Args:
            fixed: layers of another size, which are resident in any case.
        """
        homes = self._homes(num_layers, fixed)
        return as_runs(homes.values(), self._resident_experts(homes))

    def _resident_experts(self, homes: Mapping[int, Home]) -> dict[int, tuple[int, ...]]:
        """By layer; how often each is used is not known."""
        if not self.experts:
            return {}
        ids = tuple(range(self.experts))
        return {layer: ids for layer, home in homes.items() if home in MLPS_APART}

    def _homes(self, num_layers: int, fixed: Collection[int]) -> dict[int, Home]:
        """By layer, ascending."""
        apart = self.not_resident
        comes = iter(self._homes_on_the_way())
        chosen = iter(_evenly(apart, num_layers - len(fixed)))
        computed = iter(_evenly(self.whole_on_cpu + self.mlps_on_cpu, apart))
        read = iter(_evenly(self.read_on_cpu, self.whole_on_cpu))

        in_place, how = self.read_in_place, self.how
        homes: dict[int, Home] = {}
        for layer in range(num_layers):
            if layer in fixed or not next(chosen):
                homes[layer] = "resident"
            elif in_place:
                homes[layer] = "disk"
            elif not next(computed):
                homes[layer] = next(comes)
            else:
                homes[layer] = "disk-cpu" if self.read_on_cpu and next(read) else how
        return homes

    def _homes_on_the_way(self) -> Iterator[Home]:
        """Of the streamed layers in turn. Of those on disk, the first ones are what sweeps begin
        with, so that all others may be lent.
        """
        first = stream_slots(self.streamed)
        read_first = min(first, self._on_their_way)
        read = [layer < read_first for layer in range(first)]
        read += _evenly(self._on_their_way - read_first, self.streamed - first)
        held: Home = "host-mlp" if self.mlps else "host" if self.lent else "streamed"
        for is_read in read:
            yield "disk_streamed" if is_read else held

    def rules(
        self, num_layers: int, tokens: int, fixed: Collection[int] = ()
    ) -> tuple[CpuRule, ...]:
        """Which layers steps of at most `tokens` tokens leave to the CPU."""
        return self._rules(streamed_among(self._homes(num_layers, fixed)), tokens)

    def _rules(self, streamed: StreamedLayers, tokens: int) -> tuple[CpuRule, ...]:
        return (CpuRule(tokens, self._lent_among(streamed)),) if self.lent else ()

    def _lent_among(self, streamed: StreamedLayers) -> tuple[int, ...]:
        free = [n for n in streamed.layers[streamed.slots :] if n not in streamed.on_disk]
        return spread_among(free, self.lent)

    def sweep(self, num_layers: int, fixed: Collection[int] = (), *, prompts: bool) -> SweepLayers:
        """What a sweep does with them. Layers that are read in place are on disk without being
        streamed, which programs of an engine do not say.

        Args:
            prompts: whether it reads any.
        """
        homes = self._homes(num_layers, fixed)
        if self.read_in_place:
            read = tuple(layer for layer, home in homes.items() if home in ON_DISK)
            return SweepLayers(StreamedLayers(on_disk=read))
        plain = SweepChoice.of_homes(homes, experts=self._resident_experts(homes)).usual
        return self.lend(plain) if self.lent and not prompts else plain

    def lend(self, plain: SweepLayers) -> SweepLayers:
        """What a sweep does that reads no prompt, after what it does if no layer is lent."""
        lent = self._lent_among(plain.streamed)
        if not self.mlps:
            return SweepLayers(plain.streamed, lent)
        return SweepLayers(plain.streamed, (), lent, lent if self.experts else ())

    def describe(self, num_layers: int) -> str:
        """For people."""
        *parts, last = list(self._parts(num_layers)) or ["weights resident"]
        return f"{', '.join(parts)} and {last}" if parts else last

    def _parts(self, num_layers: int) -> Iterator[str]:
        of_all = f"of {num_layers} layers"
        if self.mlps and self.experts:
            of_some = self._some_experts(self.mlps_streamed, num_layers)
            yield f"{of_some} streamed{self._left_to_cpu}"
        elif self.mlps:
            yield f"the MLPs of {_count(self.mlps_streamed, num_layers)} streamed"
        elif self.streamed >= num_layers:
            yield "weights streamed"
        elif self.streamed:
            yield f"{self.streamed} {of_all} streamed"
        if self.read_in_place:
            yield f"{self.on_disk} {of_all} read from disk"
        elif self._on_their_way and not self.mlps:
            yield f"{self.on_disk} of them from disk"
        if self.lent and not self.experts:
            yield f"{self._them(num_layers)} on the CPU where no prompt is read"
        if self._on_their_way and self.mlps:
            yield f"{self.on_disk} layers streamed from disk"
        if self.whole_on_cpu:
            yield f"{self.on_cpu} {of_all} on the CPU"
        if self.read_on_cpu:
            yield f"{self.on_disk} of them from disk"
        if self.mlps_on_cpu:
            of_some = self._some_experts(self.on_cpu, num_layers)
            of_all = f"the MLPs of {_count(self.on_cpu, num_layers)}"
            yield f"{of_some if self.experts else of_all} on the CPU"
        if self.embedding:
            yield "embeddings in host memory"

    def _them(self, num_layers: int) -> str:
        """Layers, or MLPs, that are lent."""
        of_all = not self.mlps and self.streamed >= num_layers
        return f"{self.lent} layers" if of_all else f"{self.lent} of them"

    def _some_experts(self, layers: int, num_layers: int) -> str:
        """Of mixtures in part: as many of each, and what becomes of the others follows."""
        word = "expert" if self.experts == 1 else "experts"
        each = "layer" if layers == num_layers else f"of {layers} layers"
        return f"{self.experts} {word} of each {each} resident, the others"

    @property
    def _left_to_cpu(self) -> str:
        """Of mixtures in part, those whose other experts do not always come."""
        if not self.lent:
            return ""
        which = "" if self.lent == self.mlps_streamed else f"in {self.lent} layers "
        return f" ({which}left to the CPU where no prompt is read)"


def _evenly(count: int, places: int) -> list[bool]:
    """Which of the places are taken."""
    return [(i + 1) * count // places > i * count // places for i in range(places)]


def _count(layers: int, num_layers: int) -> str:
    return (
        f"all {num_layers} layers" if layers == num_layers else f"{layers} of {num_layers} layers"
    )
