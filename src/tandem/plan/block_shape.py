"""What the programs of a zig-zag block depend on."""

from dataclasses import dataclass, field

from tandem.plan.program import BufferRef, LaneShape, buffer
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.weights import StreamedLayers
from tandem.spec.tier import Tier

CACHE_SLOTS = 2
"""Keys and values of one batch in one layer that the accelerator has room for: used, and coming."""
MADE_AT_ONCE = 1024
"""Tokens of prefixes whose keys and values are made anew in one product: enough for full speed, and
few enough that their intermediates are small beside a step's."""
AHEAD_COPIES = 4 * CACHE_SLOTS
"""At most so many copies end a pass on `h2d` that bring something for the next one, those between
them included: for each slot a prefix, keys and values, a result of the CPU's attention before them,
and one of its MLP behind them."""


@dataclass(frozen=True, slots=True)
class BlockShape:
    """A block's batches go through a layer one after the other, and then through the next one.

    All batches are alike.

    Attributes:
        weights: layers that come to the accelerator in every pass, some of them from disk; the
            others are resident.
        resident, streamed, cpu: whether a batch has sequences whose KV lies on the accelerator, is
            brought there in every layer, or is attended on the CPU.
        recomputes: of streamed ones, a prefix comes as activations.
        prompts_on_host: between layers, activations of prompts lie on the host.
        layers_overlap: in passes, a batch that the CPU has attended to goes on into the next layer
            while the CPU attends to others in this one.
        weights_in_parts: of a layer that comes, queries', keys' and values' maps come, and give
            their place to the next layer's, apart from the rest, which is used after attention;
            those of queries come after the others where prefixes are recomputed first.
        mlps_on_cpu: of the layers of which only the MLP comes, those whose MLPs the CPU computes in
            passes. Over prompts they come as the others do.
        layers_on_cpu: of those that come whole, those that the CPU computes in passes, but for
            attention over what lies on the accelerator; likewise.
        columns_on_cpu: of every MLP that comes in passes from host memory, whole layers' included,
            the CPU computes some columns, which do not come, while the accelerator computes the
            others. Layers from disk come whole.
        attention_maps_on_cpu: nor do attention's maps of these layers come, which are the CPU's.
    """

    num_layers: int
    batches: int
    weights: StreamedLayers = field(default_factory=StreamedLayers)
    resident: bool = True
    streamed: bool = False
    cpu: bool = False
    recomputes: bool = False
    prompts_on_host: bool = False
    layers_overlap: bool = False
    weights_in_parts: bool = False
    mlps_on_cpu: tuple[int, ...] = ()
    layers_on_cpu: tuple[int, ...] = ()
    columns_on_cpu: bool = False
    attention_maps_on_cpu: bool = False

    def __post_init__(self) -> None:
        if self.num_layers < 1 or self.batches < 1:
            raise ValueError(f"{self.batches} batches, {self.num_layers} layers")
        if not (self.resident or self.streamed or self.cpu):
            raise ValueError("batches without sequences")
        if self.recomputes and not self.streamed:
            raise ValueError("only streamed KV is recomputed")
        if self.weights_in_parts and self.weights.mlps:
            raise ValueError("MLPs come as a whole")
        if self.recomputes and self.layers_on_cpu:
            raise ValueError("the accelerator makes no keys of layers that do not come")
        if self.columns_on_cpu and self.weights_in_parts:
            raise ValueError("of layers in parts no columns are the CPU's")
        if self.attention_maps_on_cpu and not self.columns_on_cpu:
            raise ValueError("attention's maps are the CPU's beside columns of MLPs")
        if self.attention_maps_on_cpu and (self.recomputes or self.weights.mlps):
            raise ValueError("attention's maps that recompute, or stay, are the accelerator's")

    @property
    def over_prompts(self) -> SweepLayers:
        """What the program over prompts does with layers that are not resident."""
        return SweepLayers(self.weights)

    @property
    def in_passes(self) -> SweepLayers:
        """What passes do with them."""
        return SweepLayers(self.weights, self.layers_on_cpu, self.mlps_on_cpu)

    @property
    def divided(self) -> tuple[int, ...]:
        """Layers whose MLPs are computed on both sides in passes, ascending."""
        if not self.columns_on_cpu:
            return ()
        read = frozenset(self.weights.on_disk)
        return tuple(layer for layer in self.in_passes.loaded if layer not in read)

    @property
    def cut(self) -> tuple[int, ...]:
        """Of the divided ones, those whose attention's maps are the CPU's in passes, ascending."""
        return self.divided if self.attention_maps_on_cpu else ()

    @property
    def attends(self) -> bool:
        """Whether the accelerator attends."""
        return self.resident or self.streamed

    @property
    def interleaves(self) -> bool:
        """Whether a layer's batches are ever in two layers."""
        overlap = self.layers_overlap and self.cpu and self.batches > 1
        return overlap and not self.columns_on_cpu

    @property
    def batches_part(self) -> bool:
        """Whether one batch may be layers ahead of another: the CPU computes some, and neither
        weights nor keys and values come, whose slots go round by layers.
        """
        on_cpu = bool(self.layers_on_cpu or self.mlps_on_cpu)
        comes = self.streamed or self.in_passes.reloads
        return on_cpu and self.batches > 1 and not (comes or self.cpu)

    @property
    def keys_first(self) -> bool:
        """Whether prefixes are made anew before all else in a layer, so that keys' and values' maps
        come first. Where the CPU attends, it waits for queries.
        """
        return self.weights_in_parts and self.recomputes and not self.cpu

    @property
    def pairs(self) -> int:
        """Of a batch and a layer."""
        return self.num_layers * self.batches

    @property
    def lanes(self) -> tuple[LaneShape, ...]:
        """One for each batch."""
        lane = LaneShape(device=self.attends, host=self.cpu)
        return (lane,) * self.batches

    def next_in_slot(self, pair: int) -> tuple[int, bool]:
        """Whose keys and values come where those of `pair` were, and whether it is one of the next
        pass.
        """
        following = pair + CACHE_SLOTS
        return (following, False) if following < self.pairs else (pair % CACHE_SLOTS, True)


STREAMED_PAGES, PREFIX_PAGES = "pages.streamed", "pages.prefix"
CACHE_SLOT, PREFIX_SLOT, RECOMPUTED = "cache_slot", "prefix_slot", "recomputed"


def cache_slot(pair: int) -> BufferRef:
    """Keys and values on the accelerator for the time of one layer."""
    return buffer(CACHE_SLOT, -1, pair % CACHE_SLOTS)


def prefix_slot(pair: int) -> BufferRef:
    """Activations on the accelerator for the time of one layer."""
    return buffer(PREFIX_SLOT, -1, pair % CACHE_SLOTS)


def streamed_pages(batch: int, layer: int) -> BufferRef:
    """Keys and values of a batch that cross the link."""
    return buffer(STREAMED_PAGES, batch, layer)


def prefix_pages(batch: int, layer: int) -> BufferRef:
    """A batch's activations before a layer, of the prefix whose keys and values are not stored."""
    return buffer(PREFIX_PAGES, batch, layer)


def batch_pages(tier: Tier, batch: int, layer: int) -> BufferRef:
    """Keys and values of a batch that stay in one tier."""
    return buffer(f"pages.{tier.label}", batch, layer)
