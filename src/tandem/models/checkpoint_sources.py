"""A checkpoint's tensors as the weights that they are, some of them in several parts."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import groupby

from tandem.models.checkpoint import FLOAT_TYPES, StoredTensor, listed, open_shard
from tandem.models.quantized_checkpoint import StoredMap, find_maps
from tandem.quant.formats.stored_weight import StoredPart, StoredQuantization
from tandem.spec.errors import ModelError


@dataclass(frozen=True, slots=True)
class Source:
    """A weight in the checkpoint.

    Attributes:
        tensors: by what their names end in; one, but of a quantized map.
        map: the quantized map.
    """

    tensors: Mapping[str, StoredTensor]
    map: StoredMap | None = None

    @property
    def first(self) -> StoredTensor:
        """One of its tensors, which stands for all in messages."""
        return next(iter(self.tensors.values()))

    @property
    def size_bytes(self) -> int:
        """In the files."""
        return sum(tensor.size_bytes for tensor in self.tensors.values())

    def check(self, shape: tuple[int, ...]) -> None:
        """Raises ModelError unless it is a weight of that shape."""
        if self.map is None:
            tensor = self.first
            if tensor.dtype not in FLOAT_TYPES:
                raise ModelError(
                    f"tensor '{tensor.name}' in {tensor.file} has type {tensor.dtype}, but no "
                    "quantization_config in config.json says what it means; use a checkpoint that "
                    f"has one, or one of {', '.join(FLOAT_TYPES)}"
                )
            _check_shape(tensor, (shape,))
            return
        outputs, inputs = shape
        self.map.weight.format(inputs)  # refuses rows that are not whole groups
        parts = self.map.weight.parts(outputs, inputs)
        missing = [f"{self.map.module}.{n}" for n, p in parts.items() if not p.optional]
        missing = [name for name in missing if name.rpartition(".")[2] not in self.tensors]
        extra = [tensor.name for name, tensor in self.tensors.items() if name not in parts]
        if missing or extra:
            what = f"lacks {listed(missing)}" if missing else f"holds unexpected {listed(extra)}"
            raise ModelError(
                f"{self.first.file} {what}; config.json and weights do not belong together, or "
                "the download is incomplete"
            )
        for name, tensor in self.tensors.items():
            _check_part(tensor, parts[name])


def find_sources(
    tensors: Mapping[str, StoredTensor],
    quantization: StoredQuantization | None,
    wanted: Collection[str],
) -> dict[str, Source]:
    """By the name of the weight that they are, quantized or not.

    Args:
        wanted: names of the model's weights. Others are kept, but for a quantized map's bias that
            is all zeros: some tools write one where the model has none.
    """
    maps = find_maps(tensors, quantization)
    empty = _empty_biases([tensors[n] for n in _unwanted_biases(tensors, maps, wanted)])
    sources: dict[str, Source] = {}
    for name, tensor in tensors.items():
        module, _, part = name.rpartition(".")
        found = maps.get(module)
        if found is not None and part in found.tensors:
            sources.setdefault(f"{module}.weight", Source(found.tensors, found))
        elif tensor.name not in empty:
            sources[name] = Source({part: tensor})
    return sources


def _unwanted_biases(
    tensors: Mapping[str, StoredTensor], maps: Mapping[str, StoredMap], wanted: Collection[str]
) -> list[str]:
    names = [f"{module}.bias" for module in maps]
    return [name for name in names if name in tensors and name not in wanted]


def _empty_biases(biases: list[StoredTensor]) -> set[str]:
    """Names, in the files, of those that are all zeros."""
    empty: set[str] = set()
    for file, of_file in groupby(sorted(biases, key=lambda b: b.file), key=lambda b: b.file):
        with open_shard(file) as shard:
            empty |= {b.name for b in of_file if not shard.get_tensor(b.name).any()}
    return empty


def _check_part(tensor: StoredTensor, part: StoredPart) -> None:
    if tensor.dtype not in part.types:
        raise ModelError(
            f"tensor '{tensor.name}' in {tensor.file} has type {tensor.dtype}, not "
            f"{' or '.join(sorted(part.types))}; config.json and weights do not belong together"
        )
    _check_shape(tensor, part.shapes)


def _check_shape(tensor: StoredTensor, shapes: tuple[tuple[int, ...], ...]) -> None:
    if tensor.shape not in shapes:
        expected = " or ".join(str(list(shape)) for shape in shapes)
        raise ModelError(
            f"tensor '{tensor.name}' in {tensor.file} has shape {list(tensor.shape)}, but "
            f"config.json asks for {expected}; they do not belong together"
        )
