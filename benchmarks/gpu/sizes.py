"""What single kernels work on."""

from dataclasses import dataclass

from benchmarks.gpu.cells import Shape

from tandem.probes.kernel_cases import HeadShape, Workload
from tandem.probes.linear_cases import MatrixShape, WeightKind
from tandem.spec.kv_type import KVType
from tandem.spec.weight_format import WeightFormat


@dataclass(frozen=True, slots=True)
class MixtureSizes:
    """A layer's experts, of which each token goes to some.

    Attributes:
        rows: tokens, up to a step full of prompts: with many for each expert weights are read more
            than once, and experts in turn may be faster.
    """

    count: int
    per_token: int
    hidden: int
    inner: int
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KernelSizes:
    """What kernels work on.

    Attributes:
        decode: (rows, keys of each). prompts: tokens of one. matrices: (outputs, inputs).
        rows: of activations. copies: of a weight, and of a layer's pages, more than the caches hold
            together.
        sampled: rows that tokens are drawn for.
    """

    shape: Shape
    decode: tuple[tuple[int, int], ...]
    prompts: tuple[int, ...]
    matrices: tuple[tuple[int, int], ...]
    rows: tuple[int, ...]
    mixtures: tuple[MixtureSizes, ...]
    sampled: tuple[int, ...]
    copies: int
    blocks: int
    trips: int
    rounds: int


@dataclass(frozen=True, slots=True)
class TileSizes:
    """What kernels work on while they are cut otherwise.

    Attributes:
        heads: of models. kv: kinds beside 16 bits. decode: (rows, keys of each). prompt: tokens of
            one.
        matrices: (outputs, inputs). rows: of activations. copies: of a weight.
        blocks: that are copied, of each of `block_bytes`, ascending.
    """

    heads: tuple[HeadShape, ...]
    kv: tuple[KVType, ...]
    decode: tuple[tuple[int, int], ...]
    prompt: int
    matrices: tuple[tuple[int, int], ...]
    formats: tuple[WeightFormat, ...]
    rows: tuple[int, ...]
    copies: int
    blocks: int
    block_bytes: tuple[int, ...]
    rounds: int


@dataclass(frozen=True, slots=True)
class HostSizes:
    """What the compiled kernels work on, on the machine's own processor.

    Attributes:
        heads: of attention; the first with KV of every type. loads: of decode.
        matrices: the first with weights of every kind, the others of float16. rows: of activations.
        rounds: samples of each variant.
    """

    heads: tuple[HeadShape, ...]
    loads: tuple[Workload, ...]
    matrices: tuple[MatrixShape, ...]
    kinds: tuple[WeightKind, ...]
    rows: tuple[int, ...]
    rounds: int
