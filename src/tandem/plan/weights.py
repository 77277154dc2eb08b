"""Where a model's weights lie, and the order in which those elsewhere come to the accelerator."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from tandem.spec.errors import ConfigError

Home = Literal[
    "resident", "streamed", "cpu", "host", "cpu-mlp", "host-mlp",
    "disk", "disk-cpu", "disk_streamed",
]  # fmt: skip
EmbeddingHome = Literal["resident", "host"]
EMBEDDING_HOMES: tuple[EmbeddingHome, ...] = ("resident", "host")
"""Where token embeddings may lie: where the maths is done, or in host memory beside an accelerator,
which reads a row of them for each token.
"""
HOMES: tuple[Home, ...] = (
    "resident", "streamed", "cpu", "host", "cpu-mlp", "host-mlp", "disk", "disk-cpu",
)  # fmt: skip
"""Homes that a file may name. Beside an accelerator `disk` becomes `disk_streamed`; without one
`disk-cpu` becomes `disk`.
"""
SLOTTED: tuple[Home, ...] = ("streamed", "host", "host-mlp", "disk_streamed")
"""Homes of layers that may come to the accelerator, or whose MLPs may, and so have a slot there."""
LENT: tuple[Home, ...] = ("host", "host-mlp")
"""Of them, those that a sweep may leave to the CPU."""
ON_DISK: tuple[Home, ...] = ("disk", "disk-cpu", "disk_streamed")
"""Homes of layers in files."""
ON_CPU: tuple[Home, ...] = ("cpu", "disk-cpu")
"""Homes of layers that the CPU computes in every sweep beside an accelerator."""
HOSTED: tuple[Home, ...] = ("streamed", "host", "cpu")
"""Homes of whole layers in host memory beside an accelerator."""
MLPS_APART: tuple[Home, ...] = ("cpu-mlp", "host-mlp")
"""Homes of layers of which only the MLP, or the experts, is in host memory."""
STREAM_SLOTS = 2
"""Layers that the accelerator holds of the streamed ones: one is used while the next one comes."""


def stream_slots(layers: int) -> int:
    """Slots of so many streamed layers; where there are no more, they stay there."""
    return min(STREAM_SLOTS, layers)


@dataclass(frozen=True, slots=True)
class WeightPlacement:
    """Where a run of layers keeps its weights.

    Attributes:
        first_layer, last_layer: inclusive.
        home: `resident` where the maths is done; `streamed`: in host memory, brought to the
            accelerator in every sweep; `cpu`: in host memory, computed there; `host`: in host
            memory, streamed or computed there as the plan says for a step's size; `cpu-mlp`,
            `host-mlp`: the MLP or the experts as `cpu` or `host`, the rest as `resident`; `disk`:
            in files, read by the host in every sweep and computed there, where there is no
            accelerator; `disk-cpu`: likewise beside one; `disk_streamed`: in files, read by the
            host in every sweep and brought to the accelerator.
        experts: of each of these layers, those that are resident on the accelerator all the same,
            ascending, and not all; the accelerator then routes. The others are what `home` is
            about.

    Raises:
        ConfigError: experts of another home than `cpu-mlp` or `host-mlp`, or not ascending.
    """

    first_layer: int
    last_layer: int
    home: Home = "resident"
    experts: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.experts and self.home not in MLPS_APART:
            raise ConfigError(
                f"layers {self.first_layer} to {self.last_layer} have home '{self.home}' and "
                f"single experts on the accelerator; only homes {' and '.join(MLPS_APART)} can "
                "have those",
                param="placement",
            )
        if list(self.experts) != sorted(set(self.experts)):
            raise ConfigError(
                f"experts {list(self.experts)} of layers {self.first_layer} to {self.last_layer} "
                "are not in ascending order, each once",
                param="placement",
            )


@dataclass(frozen=True, slots=True)
class PlacedWeights:
    """Homes of all layers, and of the token embeddings."""

    layers: tuple[WeightPlacement, ...]
    embedding: EmbeddingHome = "resident"


@dataclass(frozen=True, slots=True)
class StreamedLayers:
    """Layers that come to the accelerator anew in every sweep, in turn through a few slots.

    The order is a circle: a sweep begins with the first `slots` of them there or on their way, and
    each slot is filled again as soon as its layer has been used, at the end of a sweep for the
    next.

    Attributes:
        layers: ascending.
        on_disk: ascending; those of `layers` that are read from files before they come.
        mlps: ascending; those of which only the MLP comes, or the experts.
    """

    layers: tuple[int, ...] = ()
    on_disk: tuple[int, ...] = ()
    mlps: tuple[int, ...] = ()

    @property
    def slots(self) -> int:
        """Layers that the accelerator has memory for."""
        return stream_slots(len(self.layers))

    @property
    def first(self) -> tuple[int, ...]:
        """Layers that are there or on their way when a sweep begins."""
        return self.layers[: self.slots]


def streamed_layers(placements: Iterable[WeightPlacement]) -> StreamedLayers:
    """The layers that have a slot."""
    return streamed_among(homes_by_layer(placements))


def streamed_among(homes: Mapping[int, Home]) -> StreamedLayers:
    """Of all layers by their homes, those that have a slot."""
    circle = tuple(sorted(layer for layer, home in homes.items() if home in SLOTTED))
    read = tuple(layer for layer in circle if homes[layer] == "disk_streamed")
    mlps = tuple(layer for layer in circle if homes[layer] == "host-mlp")
    return StreamedLayers(circle, on_disk=read, mlps=mlps)


def disk_layers(placements: Iterable[WeightPlacement]) -> tuple[int, ...]:
    """The layers in files, ascending."""
    homes = homes_by_layer(placements)
    return tuple(sorted(layer for layer, home in homes.items() if home in ON_DISK))


def layers_at(placements: Iterable[WeightPlacement], home: Home) -> tuple[int, ...]:
    """The layers with a home, ascending."""
    homes = homes_by_layer(placements)
    return tuple(sorted(layer for layer, found in homes.items() if found == home))


def homes_by_layer(placements: Iterable[WeightPlacement]) -> dict[int, Home]:
    """Home of every layer that is named.

    Raises:
        ConfigError: a layer has two homes.
    """
    homes: dict[int, Home] = {}
    for run in placements:
        for layer in range(run.first_layer, run.last_layer + 1):
            if layer in homes:
                raise ConfigError(
                    f"layer {layer} is placed twice; place it once", param="placement"
                )
            homes[layer] = run.home
    return homes


def resident_experts(placements: Iterable[WeightPlacement]) -> dict[int, tuple[int, ...]]:
    """By layer, experts on the accelerator whose layer's other ones are in host memory; layers
    without such experts are left out.
    """
    return {
        layer: run.experts
        for run in placements
        for layer in range(run.first_layer, run.last_layer + 1)
        if run.experts
    }


def as_runs(
    homes: Iterable[Home], experts: Mapping[int, tuple[int, ...]] | None = None
) -> tuple[WeightPlacement, ...]:
    """The homes of layers 0, 1, ... as few runs.

    Args:
        experts: as in `resident_experts`.
    """
    single = experts or {}
    alike = groupby(enumerate(homes), lambda entry: (entry[1], single.get(entry[0], ())))
    runs: list[WeightPlacement] = []
    for (home, resident), members in alike:
        layers = [layer for layer, _ in members]
        runs.append(WeightPlacement(layers[0], layers[-1], home, resident))
    return tuple(runs)
