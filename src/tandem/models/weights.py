"""A model's weights in memory.

Nothing is filled here: the checkpoint loader and the dummy filler both write through
`Weights.parameters()`, the one list of what there is.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tandem.models.disk_weights import DiskPlacement, DiskWeights, Pin
from tandem.models.divided_layer import COLUMNS, DividedLayer
from tandem.models.host_mlps import HostMlps
from tandem.models.in_slots import Moving, in_slots
from tandem.models.weight_layout import Affine, LayerLayout, LayerShapes, Modules, allocate_modules
from tandem.models.weight_stream import WeightStream
from tandem.plan.sweep_layers import SweepLayers
from tandem.plan.weights import EmbeddingHome
from tandem.quant.quantized_weight import QuantizedWeight
from tandem.spec.dtype import DType
from tandem.spec.model import ExpertSpec, ModelSpec
from tandem.spec.parameters import (
    FUSED_MODULES,
    embedding_weights,
    head_weights,
    layer_weights,
    mlp_weights,
)
from tandem.spec.weight_format import WeightFormat

if TYPE_CHECKING:
    from tandem.models.host_embedding import HostEmbedding


@dataclass(frozen=True, slots=True)
class Parameter:
    """One canonical weight and where it lies.

    Attributes:
        layer: its layer, or None outside the layers.
        name: canonical, e.g. `q.weight`.
        tensor: the memory to fill, a view into a fused tensor for some; always contiguous.
        quantized: what is to be filled instead, if the weight is quantized.
    """

    layer: int | None
    name: str
    tensor: Tensor
    quantized: QuantizedWeight | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the weight itself, however it is kept."""
        kept = self.quantized
        return tuple(self.tensor.shape) if kept is None else (kept.outputs, kept.inputs)

    @property
    def size_bytes(self) -> int:
        """As it is kept."""
        return self.tensor.nbytes if self.quantized is None else self.quantized.size_bytes


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights of a model.

    Attributes:
        outer: `embedding`, `position_embedding` (learned positions only), `final_norm`, `head`;
            a tied head is the very tensor of the embedding.
        layers: one entry per layer, as the maths reads it: of those that are streamed or read from
            disk, as if each were in the first slot.
        stream: memory of layers, and of streamed MLPs, in host memory, None if there are none.
        disk: the layers that are read from files, None if there are none.
        mlps: MLPs that stay in host memory, of layers that are resident but for these; None if
            there are none.
        embedding: the token embeddings, if they are in host memory beside an accelerator; `outer`
            has them as it sees them.
    """

    outer: Modules
    layers: tuple[Modules, ...]
    tied: bool
    stream: WeightStream | None = None
    disk: DiskWeights | None = None
    mlps: HostMlps | None = None
    embedding: "HostEmbedding | None" = None

    def parameters(self, fused: Collection[str] = ()) -> Iterator[Parameter]:
        """Every stored weight once, in order of use: no tied head. Matrices on disk are tensors
        without memory; those of divided MLPs are what they are until `divide`.

        Args:
            fused: fused modules to give whole; the others come as their parts.
        """
        outer = {name: a for name, a in self.outer.items() if not (self.tied and name == "head")}
        if self.embedding is not None:
            outer["embedding"] = Affine(self.embedding.stored)
        first = {name: a for name, a in outer.items() if "embedding" in name}
        yield from _parts(None, first)
        stored = {} if self.stream is None else self.stream.stored
        on_disk = {} if self.disk is None else self.disk.stored
        for index, used in enumerate(self.layers):
            layer = used | stored.get(index, {}) | on_disk.get(index, {})
            undivided = {name: a for name, a in layer.items() if not name.startswith(COLUMNS)}
            yield from layer_weights_of(index, undivided, fused)
        yield from _parts(None, {name: a for name, a in outer.items() if name not in first})

    def here(self, layer: int) -> Modules:
        """Of a layer's weights, those where the maths is done: without matrices of its MLP, or of
        some of its experts, that the CPU reads in host memory.
        """
        apart = {} if self.mlps is None else self.mlps.stored.get(layer, {})
        matrices = {name for name, affine in apart.items() if affine.weight.ndim > 1}
        return {name: a for name, a in self.layers[layer].items() if name not in matrices}

    @property
    def layers_apart(self) -> tuple[int, ...]:
        """Layers whose MLPs, or some of their experts, are in host memory."""
        apart = () if self.mlps is None else self.mlps.stored
        return tuple(sorted({*apart, *(() if self.stream is None else self.stream.mlps)}))

    @property
    def divided_layers(self) -> frozenset[int]:
        """Streamed layers of whose MLPs the CPU computes columns."""
        return frozenset(() if self.stream is None else self.stream.divided_layers)

    def staying(self, layer: int) -> Modules:
        """Of a layer's weights, as `here`, those that never come and go."""
        if self.stream is None or layer not in self.stream.moving.slots:
            return self.here(layer)
        in_slot = self.stream.moving.slots[layer][0]
        coming = {name for name, a in in_slot.items() if a.weight.ndim > 1}
        return {name: a for name, a in self.layers[layer].items() if name not in coming}

    def in_use(self) -> Mapping[int, Modules]:
        """By layer, as `here`; of streamed layers, in the slot to which they have come."""
        here = {layer: self.here(layer) for layer in range(len(self.layers))}
        return in_slots(here, self.moving)

    @property
    def moving(self) -> Moving[Modules] | None:
        """Streamed layers, as `here`, in each of the slots; None if there are none."""
        if self.stream is None:
            return None
        return self.stream.moving.each(lambda layer, modules: self.here(layer) | modules)

    @property
    def size_bytes(self) -> int:
        """Bytes of all weights, wherever they lie."""
        return sum(p.size_bytes for p in self.parameters())

    @property
    def host_bytes(self) -> int:
        """Memory of layers, of MLPs and of embeddings in the host, beside an accelerator."""
        layers = 0 if self.stream is None else self.stream.host_bytes
        mlps = 0 if self.mlps is None else self.mlps.host_bytes
        return layers + mlps + (0 if self.embedding is None else self.embedding.size_bytes)

    @property
    def disk_bytes(self) -> int:
        """What lies in files."""
        return 0 if self.disk is None else self.disk.disk_bytes

    @property
    def disk_slots_bytes(self) -> int:
        """Host memory that layers on disk go through."""
        return 0 if self.disk is None else self.disk.slots_bytes

    @property
    def pinned_bytes(self) -> int:
        """Host memory that is known to the accelerator, since it is copied or read from there."""
        owners = (self.stream, self.disk, self.embedding)
        return sum(owner.pinned_bytes for owner in owners if owner is not None)

    @property
    def resident_bytes(self) -> int:
        """Memory where the maths is done: resident weights, and the slots of streamed ones,
        also of those that are read there from disk.
        """
        slots = 0 if self.stream is None else self.stream.slots_bytes
        slots += 0 if self.disk is None else self.disk.direct_slots_bytes
        return self.size_bytes - self.disk_bytes - self.host_bytes + slots

    @property
    def computed_from_disk(self) -> DiskWeights | None:
        """Layers on disk that the maths reads where they have been read to, all in one call; None
        if there is an accelerator beside.
        """
        return self.disk if self.stream is None else None

    def divide(self) -> None:
        """Once they have been filled: MLPs of which the CPU computes columns. Their `parameters`
        are void then.
        """
        if self.stream is not None:
            self.stream.divide()

    def prepare(self) -> None:
        """After they have been filled, make them ready for the first sweep.

        Raises:
            ModelError: layers on disk cannot be read.
        """
        if self.stream is not None:
            self.stream.prime()

    def close(self) -> None:
        """Let the device forget memory of the host, and files be; nothing may be in flight."""
        if self.disk is not None:
            self.disk.close()
        if self.stream is not None:
            self.stream.close()
        if self.embedding is not None:
            self.embedding.close()


def torch_dtype(dtype: DType) -> torch.dtype:
    """Torch's name of an element type."""
    return getattr(torch, dtype.value)


def spec_dtype(dtype: torch.dtype) -> DType:
    """The element type that torch calls `dtype`.

    Raises:
        ValueError: weights and activations are never of that type.
    """
    return DType(str(dtype).removeprefix("torch."))


def allocate_weights(
    spec: ModelSpec,
    dtype: torch.dtype,
    device: torch.device,
    hosted: SweepLayers | None = None,
    pin: Pin | None = None,
    disk: DiskPlacement | None = None,
    quantized: Mapping[str, WeightFormat] | None = None,
    experts: Mapping[int, tuple[int, ...]] | None = None,
    embedding: EmbeddingHome = "resident",
    *,
    resident_quantized: bool = True,
    columns: int = 0,
    attention_maps: bool = False,
) -> Weights:
    """Memory for all weights of `spec`, not yet filled.

    Args:
        dtype: of what is not quantized.
        device: where the maths is done.
        hosted: layers that lie in host memory, whatever a sweep does with them, all with experts
            or all without; and those whose MLPs do.
        pin: makes host memory known to the device.
        disk: layers that stay in files, likewise; those that are not `hosted` are computed where
            they are read to, all in one call.
        quantized: formats of the layers' quantized linear maps, by canonical name.
        experts: by layer whose MLP is in host memory, those that are on the device with the
            router.
        embedding: where token embeddings lie; those that are the head as well, on the device.
        resident_quantized: False: formats are those of layers that lie elsewhere only, and layers
            all of which is on the device are of `dtype`.
        columns: of the MLPs of streamed layers, those that the CPU computes in some steps; 0: none.
            Neither are there experts then, nor anything in few bits; layers on disk stay whole.
        attention_maps: of the same layers, attention's maps are the CPU's, too.
    """
    outer, looked_up = _around_layers(spec, dtype, device, embedding, pin)
    shapes = {
        spec.routed_experts(i): LayerShapes(layer_weights(spec, i), dtype, quantized or {})
        for i in spec.distinct_layers
    }
    on_disk = _in_files(spec, shapes, disk, hosted, device, pin)
    hosted = hosted or SweepLayers()
    cut = {
        layer: _cut(spec, layer, shapes, (experts or {}).get(layer, ()))
        for layer in (*hosted.mlp_on_cpu, *hosted.streamed.mlps)
    }
    apart = {layer: LayerLayout(mlp) for layer, (_, mlp) in cut.items()}
    stream, used = None, dict[int, Modules]()
    if on_disk is not None:
        used = dict(on_disk.in_first_slot())
    layouts = _stream_layouts(spec, hosted, shapes, apart)
    if layouts:
        divided = None
        if columns:
            divided = _divided(hosted, shapes, cut, columns, attention_maps=attention_maps)
        stream = WeightStream(hosted, layouts, device, pin, on_disk, divided)
        used |= stream.stored | {layer: slots[0] for layer, slots in stream.moving.slots.items()}
    mlps = None
    if hosted.mlp_on_cpu:
        mlps = HostMlps({layer: apart[layer] for layer in hosted.mlp_on_cpu}, device)
        used |= mlps.stored
    for layer, (kept, _) in cut.items():
        used[layer] = allocate_modules(kept, device) | used[layer]
    here = shapes
    if not resident_quantized:
        here = {kind: replace(layer, quantized={}) for kind, layer in shapes.items()}
    layers = tuple(
        used[layer] if layer in used else allocate_modules(here[spec.routed_experts(layer)], device)
        for layer in range(spec.num_layers)
    )
    return Weights(outer, layers, spec.tie_embeddings, stream, on_disk, mlps, looked_up)


def _around_layers(
    spec: ModelSpec,
    dtype: torch.dtype,
    device: torch.device,
    embedding: EmbeddingHome,
    pin: Pin | None,
) -> "tuple[Modules, HostEmbedding | None]":
    """Embeddings, last norm and head; and the token embeddings, if they are in host memory."""
    around, looked_up = embedding_weights(spec) + head_weights(spec), None
    if embedding == "host":
        from tandem.models.host_embedding import HostEmbedding  # most models need none

        looked_up, around = HostEmbedding(around[0].shape, dtype, device, pin), around[1:]
    outer = allocate_modules(LayerShapes(around, dtype, {}), device)
    if looked_up is not None:
        outer = {"embedding": Affine(looked_up.seen)} | outer
    if spec.tie_embeddings:
        outer["head"] = outer["embedding"]
    return outer, looked_up


def _in_files(
    spec: ModelSpec,
    shapes: Mapping[ExpertSpec | None, LayerShapes],
    disk: DiskPlacement | None,
    hosted: SweepLayers | None,
    device: torch.device,
    pin: Pin | None,
) -> DiskWeights | None:
    """Layers that stay in files, whose slots are pinned if the device copies from them."""
    if disk is None or not disk.layers:
        return None
    layout = LayerLayout(shapes[_kind_of(spec, disk.layers)])
    copied = hosted is not None and bool(hosted.streamed.on_disk)
    return DiskWeights(disk, layout, device, pin if copied else None)


def _stream_layouts(
    spec: ModelSpec,
    hosted: SweepLayers,
    shapes: Mapping[ExpertSpec | None, LayerShapes],
    apart: Mapping[int, LayerLayout],
) -> dict[int, LayerLayout]:
    """Of what lies in host memory to be streamed or computed there: MLPs apart, or whole layers."""
    elsewhere = (*hosted.streamed.layers, *hosted.on_cpu)
    whole = tuple(layer for layer in elsewhere if layer not in apart)
    layouts = {layer: apart[layer] for layer in hosted.streamed.mlps}
    if whole:
        layouts |= dict.fromkeys(whole, LayerLayout(shapes[_kind_of(spec, whole)]))
    return layouts


def _divided(
    hosted: SweepLayers,
    shapes: Mapping[ExpertSpec | None, LayerShapes],
    cut: Mapping[int, tuple[LayerShapes, LayerShapes]],
    columns: int,
    *,
    attention_maps: bool,
) -> dict[int, DividedLayer]:
    """Of streamed layers in host memory, so many columns of the MLP apart; layers of a kind are
    alike.
    """
    whole = DividedLayer(shapes[None], columns, attention_maps=attention_maps)
    apart = DividedLayer(next(iter(cut.values()))[1], columns) if cut else whole
    read = frozenset(hosted.streamed.on_disk)
    here = (n for n in hosted.streamed.layers if n not in read)
    return {n: apart if n in cut else whole for n in here}


def _cut(
    spec: ModelSpec,
    layer: int,
    shapes: Mapping[ExpertSpec | None, LayerShapes],
    experts: tuple[int, ...],
) -> tuple[LayerShapes, LayerShapes]:
    """A layer's weights where the maths is done, and those in host memory: from the norm of the
    MLP on, but for the router and these experts, if there are any.
    """
    whole, mlp = shapes[spec.routed_experts(layer)], mlp_weights(spec, layer)
    stay = ("router", *(f"experts.{i}" for i in experts)) if experts else ()
    here = tuple(weight for weight in mlp if weight.name.startswith(tuple(f"{s}." for s in stay)))
    in_host = tuple(weight for weight in mlp if weight not in here)
    before = whole.shapes[: -len(mlp)]
    return replace(whole, shapes=before + here), replace(whole, shapes=in_host)


def _kind_of(spec: ModelSpec, layers: tuple[int, ...]) -> ExpertSpec | None:
    """What these layers have in common; layers that take turns in the same memory are alike."""
    (kind,) = {spec.routed_experts(layer) for layer in layers}
    return kind


def layer_weights_of(
    index: int, layer: Modules, fused: Collection[str] = ()
) -> Iterator[Parameter]:
    """Every weight of a layer once; of `fused` modules the whole, of others the parts."""
    left_out = {part for name in fused for part in FUSED_MODULES[name]}
    left_out |= FUSED_MODULES.keys() - set(fused)
    kept = {k: a for k, a in layer.items() if k.rpartition(".")[2] not in left_out}
    yield from _parts(index, kept)


def _parts(layer: int | None, modules: Modules) -> Iterator[Parameter]:
    for name, affine in modules.items():
        yield Parameter(layer, f"{name}.weight", affine.weight, affine.quantized)
        if affine.bias is not None:
            yield Parameter(layer, f"{name}.bias", affine.bias)
