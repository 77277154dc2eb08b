"""Times on the CPU from a profile's measurements, for one model."""

from collections.abc import Iterable, Sequence

from tandem.cost.stage import AttentionWork
from tandem.memory.page import KVPageSpec
from tandem.planner.measured.attention import MeasuredAttention
from tandem.profiling.hardware import peak_flops_per_s
from tandem.profiling.measurements import AttentionTimes, HostMeasurements, LinearTimes
from tandem.profiling.shared_memory import shared_memory
from tandem.profiling.surface import Surface
from tandem.spec.errors import ConfigError
from tandem.spec.model import ModelSpec
from tandem.spec.operations import Operation
from tandem.spec.precision import Precision
from tandem.spec.weight_format import WeightFormat

_FP32_BYTES = 4


class MeasuredHost(MeasuredAttention):
    """Linear maps and decode attention as measured; the rest by the measured read rate.

    Attention was measured in one shape: another model's takes in proportion to a token's keys and
    values. That of prompts is taken at the rate of the largest products.

    Attributes:
        shared: what each thing that draws from the host's memory costs the others.

    Raises:
        ConfigError: the profile has no measurements of the wanted types.
    """

    def __init__(
        self,
        measured: HostMeasurements,
        model: ModelSpec,
        precision: Precision,
        page: KVPageSpec,
        pair_flops: float,
    ) -> None:
        self.head = linear_of(measured.linear, str(precision.weights))
        formats = set(precision.quantized.values())
        self.linear = codes_of(measured.linear, formats.pop()) if formats else self.head
        self.attention = attention_of(measured.attention, str(precision.kv))
        self.shared = shared_memory(measured)
        self._start_s = measured.start.spinning_s
        self._read_s = 1 / measured.memory.read_bytes_per_s
        self._flop_s = 1 / max(map(peak_flops_per_s, measured.linear))
        self._model, self._pair_flops = model, pair_flops
        self._scale = 2 * model.kv_size / self.attention.kv_elements
        self._key_bytes = page.bytes_per_block_layer / page.block_size

    def stage_s(self, operations: Iterable[Operation], tokens: int) -> float:
        """Operations outside attention on `tokens` tokens."""
        return sum(self._operation_s(op, tokens) for op in operations)

    def head_s(self, rows: int) -> float:
        """Final norm and logits of `rows` rows."""
        elements = self._model.hidden_size * self._model.vocab_size
        return self.head.surface.at(elements, rows).seconds if rows else 0.0

    def append_s(self, size_bytes: float) -> float:
        """Of keys and values, read and written: by the rate of memory, from a start on, which the
        times of attention and products have in them.
        """
        return self._start_s + size_bytes * self._read_s if size_bytes else 0.0

    def decode_s(self, work: AttentionWork) -> float:
        """By rows and their mean context."""
        if not work.tokens:
            return 0.0
        keys = max(1.0, work.keys / work.tokens)
        return self.attention.surface.at(work.tokens, keys).seconds * self._scale

    def prompt_s(self, work: AttentionWork) -> float:
        """By the rate of the largest products, or that of memory."""
        read_s = work.keys * self._key_bytes * self._read_s
        return max(work.pairs * self._pair_flops * self._flop_s, read_s)

    def _operation_s(self, op: Operation, tokens: int) -> float:
        if op.kind == "linear" or op.experts is not None:
            return mapped_s(self.linear.surface, op, tokens)
        elements = op.weight_elements + op.activation_elements(tokens)
        return elements * _FP32_BYTES * self._read_s


def mapped_s(times: Surface, op: Operation, tokens: int) -> float:
    """A linear map of `tokens` tokens; of experts, those that the tokens need, each by itself."""
    if op.experts is None:
        return times.at(op.weight_elements, tokens).seconds
    per_expert = op.weights[0].elements
    touched = op.experts.touched_share(tokens) * op.experts.count
    rows = tokens * op.experts.per_token / touched
    return touched * times.at(per_expert, rows).seconds


def linear_of(measured: Sequence[LinearTimes], kind: str) -> LinearTimes:
    """Products with weights of an element type.

    Raises:
        ConfigError: there are none.
    """
    for times in measured:
        if times.kind == kind:
            return times
    raise ConfigError(
        f"the profile has no products with weights of {kind}; choose --dtype "
        f"{' or '.join(times.kind for times in measured)}, or run `tandem profile`",
        param="dtype",
    )


def codes_of(measured: Sequence[LinearTimes], format: WeightFormat) -> LinearTimes:
    """Products with weights of as many bits; other groups take about as long, and so, it is taken,
    do floats of a byte, which no profile has.

    Raises:
        ConfigError: there are none.
    """
    for times in measured:
        if times.kind.startswith(f"int{format.bits}/"):
            return times
    raise ConfigError(
        f"the profile has no products with weights of {format.bits} bits; run `tandem profile`",
        param="quantization",
    )


def attention_of(measured: Sequence[AttentionTimes], kind: str) -> AttentionTimes:
    """Decode attention over pages of a type.

    Raises:
        ConfigError: there is none.
    """
    for times in measured:
        if times.kind == kind:
            return times
    raise ConfigError(
        f"the profile has no attention over a KV cache of {kind}; choose --kv-cache-dtype "
        f"{' or '.join(times.kind for times in measured)}, or run `tandem profile`",
        param="kv_cache_dtype",
    )
