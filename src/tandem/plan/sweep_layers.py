"""What a sweep does with layers in host memory: bring them, or compute them where they lie."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tandem.plan.weights import (
    ON_CPU,
    Home,
    StreamedLayers,
    WeightPlacement,
    homes_by_layer,
    resident_experts,
    streamed_among,
)
from tandem.spec.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SweepLayers:
    """How one sweep comes by the weights that lie in host memory.

    The slots are the same for all sweeps, and each sweep leaves in them what the next one needs
    first, whichever way that goes on. So a sweep may leave out any layers of the circle but those
    that it begins with, or all.

    Attributes:
        streamed: the circle: layers that have a slot.
        on_cpu: ascending; layers whose maths outside attention the CPU does.
        mlp_on_cpu: ascending; others whose MLP alone the CPU computes. What the CPU computes of the
            circle is not brought.
        split_mlps: ascending; of `mlp_on_cpu`, mixtures of which the accelerator has some experts,
            and the router. Of such a mixture in the circle, the other experts are brought.
        read_on_cpu: ascending; of `on_cpu`, in every sweep, those that are read from files.
    """

    streamed: StreamedLayers = field(default_factory=StreamedLayers)
    on_cpu: tuple[int, ...] = ()
    mlp_on_cpu: tuple[int, ...] = ()
    split_mlps: tuple[int, ...] = ()
    read_on_cpu: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        loaded, first, brought = self.loaded, self.streamed.first, self.streamed.on_disk
        lent = [layer for layer in brought if layer in self.on_cpu]
        if lent:
            raise ConfigError(
                f"layers {lent} come to the accelerator from disk in every sweep, or none does; "
                "name others to be computed on the CPU in small steps",
                param="placement",
            )
        if loaded and loaded[: len(first)] != first:
            raise ConfigError(
                f"layers {list(loaded)} of {list(self.streamed.layers)} are streamed without "
                f"layers {list(first)}, which sweeps begin with; compute others on the CPU",
                param="placement",
            )

    @property
    def loaded(self) -> tuple[int, ...]:
        """Layers that go through the slots in this sweep, ascending."""
        on_cpu = {*self.on_cpu, *self.mlp_on_cpu}
        return tuple(layer for layer in self.streamed.layers if layer not in on_cpu)

    @property
    def successors(self) -> dict[int, int]:
        """Of each of those, the layer that takes its slot; of the next sweep after the last."""
        loaded, slots = self.loaded, self.streamed.slots
        return {layer: loaded[(i + slots) % len(loaded)] for i, layer in enumerate(loaded)}

    @property
    def reloads(self) -> bool:
        """Whether layers come anew in each sweep; no more than there are slots stay in those."""
        return len(self.loaded) > self.streamed.slots

    @property
    def on_disk(self) -> tuple[int, ...]:
        """Layers in files, in the order of the circle in which they are read, whatever becomes of
        them; before the first sweep come those that it finds in the accelerator's slots.
        """
        circle, brought = self.reads, self.streamed.on_disk
        if not circle:
            return brought
        begins = next((layer for layer in self.streamed.first if layer in brought), circle[0])
        at = circle.index(begins)
        return circle[at:] + circle[:at]

    @property
    def reads(self) -> tuple[int, ...]:
        """Layers in files in the order in which a sweep is done with them in host memory: those
        that the CPU computes in their turn, others when a slot of the accelerator is free for them.
        """
        if not self.streamed.on_disk:
            return self.read_on_cpu
        brought = frozenset(self.streamed.on_disk)
        follows = self.successors if self.reloads else {}
        done = {layer: after for layer, after in follows.items() if after in brought}
        done |= {layer: layer for layer in self.read_on_cpu}
        return tuple(done[layer] for layer in sorted(done))

    @property
    def all_resident(self) -> bool:
        """Whether the accelerator has all layers at any moment."""
        return not (self.streamed.layers or self.on_cpu or self.mlp_on_cpu)


def spread_among(layers: Sequence[int], count: int) -> tuple[int, ...]:
    """`count` of the layers, spread evenly among them."""
    return tuple(layers[(2 * i + 1) * len(layers) // (2 * count)] for i in range(count))


@dataclass(frozen=True, slots=True)
class CpuRule:
    """In steps of at most `max_tokens` tokens, `layers` (ascending) are computed on the CPU; of
    those with home `host-mlp`, the MLPs are.
    """

    max_tokens: int
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SweepChoice:
    """Which layers, or MLPs, are computed on the CPU, by the number of tokens of a step.

    Attributes:
        usual: of steps beyond all rules.
        rules: ascending; the first that a step fits counts.
        experts: by layer, those that the accelerator has where others are in host memory.
        cpu_columns: of each MLP that comes in steps without prompts, so many columns do not, and
            are the CPU's. cpu_attention_maps: nor do attention's maps of the same layers.
        all_resident: whether the accelerator has all layers at any moment of any step.
    """

    usual: SweepLayers = field(default_factory=SweepLayers)
    rules: tuple[tuple[int, SweepLayers], ...] = ()
    experts: Mapping[int, tuple[int, ...]] = field(
        default_factory=dict[int, tuple[int, ...]], hash=False
    )
    cpu_columns: int = 0
    cpu_attention_maps: bool = False
    all_resident: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # strategies ask in every step
        resident = all(sweep.all_resident for sweep in self._sweeps)
        object.__setattr__(self, "all_resident", resident)
        brought, read = self.usual.streamed.on_disk, self.usual.read_on_cpu
        if brought and read and not self.usual.reloads:
            raise ConfigError(
                f"layers {list(brought)} on disk would come to the accelerator once and stay, "
                f"while the CPU computes layers {list(read)} as they are read in every step; give "
                "those that stay the home resident, which takes as much there, or disk-cpu",
                param="placement",
            )
        for most, sweep in self.rules:
            if sweep.reads and sweep.reads != self.usual.reads:
                raise ConfigError(
                    f"steps of up to {most} tokens would be done with layers on disk in the order "
                    f"{list(sweep.reads)}, larger ones in the order {list(self.usual.reads)}, and "
                    "they are read in one; leave other layers to the CPU in small steps",
                    param="placement",
                )

    @staticmethod
    def of_plan(
        placements: Iterable[WeightPlacement], rules: Iterable[CpuRule] = ()
    ) -> "SweepChoice":
        """What a placement and rules say.

        Raises:
            ConfigError: streamed layers that do not go round, or rules by which layers on disk do
                not.
        """
        placements = tuple(placements)
        return SweepChoice.of_homes(homes_by_layer(placements), rules, resident_experts(placements))

    @staticmethod
    def of_homes(
        homes: Mapping[int, Home],
        rules: Iterable[CpuRule] = (),
        experts: Mapping[int, tuple[int, ...]] | None = None,
    ) -> "SweepChoice":
        """Likewise, of all layers by their homes.

        Args:
            experts: as in `resident_experts`; None: there are none.

        Raises:
            ConfigError: streamed layers that do not go round.
        """
        always = tuple(sorted(layer for layer, home in homes.items() if home in ON_CPU))
        read = tuple(layer for layer in always if homes[layer] == "disk-cpu")
        mlps = tuple(layer for layer, home in homes.items() if home == "cpu-mlp")
        streamed, experts = streamed_among(homes), dict(experts or {})

        def sweep(lent: Iterable[int]) -> SweepLayers:
            apart = {layer for layer in lent if layer in streamed.mlps}
            whole = {*always, *lent} - apart
            on_cpu = tuple(sorted({*mlps, *apart}))
            split = tuple(layer for layer in on_cpu if layer in experts)
            return SweepLayers(streamed, tuple(sorted(whole)), on_cpu, split, read)

        return SweepChoice(
            sweep(()), tuple((rule.max_tokens, sweep(rule.layers)) for rule in rules), experts
        )

    def of(self, tokens: int) -> SweepLayers:
        """For a step of so many tokens without cohorts."""
        for most, sweep in self.rules:
            if tokens <= most:
                return sweep
        return self.usual

    def with_cohorts(self, tokens: int) -> SweepLayers:
        """Likewise with cohorts. They come back to the layers that they left, so that those have to
        be the accelerator's in all such sweeps; MLPs need not.
        """
        sweep = self.of(tokens)
        return sweep if sweep.on_cpu == self.usual.on_cpu else self.usual

    @property
    def ever_on_cpu(self) -> tuple[int, ...]:
        """Whole layers that some step computes on the CPU, ascending."""
        return tuple(sorted({layer for sweep in self._sweeps for layer in sweep.on_cpu}))

    @property
    def mlps_ever_on_cpu(self) -> tuple[int, ...]:
        """Other layers whose MLPs some step computes on the CPU, ascending."""
        return tuple(sorted({layer for sweep in self._sweeps for layer in sweep.mlp_on_cpu}))

    @property
    def uses_cpu(self) -> bool:
        """Whether the CPU ever computes a layer, an MLP, or a part of one."""
        return bool(self.ever_on_cpu or self.mlps_ever_on_cpu or self.cpu_columns)

    @property
    def cpu_tokens(self) -> int | None:
        """Most tokens of a step that computes a whole layer on the CPU; None: no bound."""
        if self.usual.on_cpu:
            return None
        return max((most for most, sweep in self.rules if sweep.on_cpu), default=0)

    @property
    def cpu_mlp_tokens(self) -> int | None:
        """Likewise of an MLP."""
        if self.usual.mlp_on_cpu:
            return None
        return max((most for most, sweep in self.rules if sweep.mlp_on_cpu), default=0)

    @property
    def _sweeps(self) -> tuple[SweepLayers, ...]:
        return (self.usual, *(sweep for _, sweep in self.rules))
