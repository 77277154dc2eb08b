"""Times on the accelerator from a profile's measurements, for one model."""

from collections.abc import Iterable
from dataclasses import replace

from tandem.cost.lm_offload.quantization import QuantRates
from tandem.cost.rates import DeviceRates
from tandem.cost.stage import AttentionWork, cost_of
from tandem.planner.measured.attention import MeasuredAttention
from tandem.planner.measured.host import attention_of, codes_of, linear_of, mapped_s
from tandem.profiling.measurements import AcceleratorMeasurements, PromptTimes
from tandem.profiling.surface import Surface
from tandem.spec.errors import ConfigError
from tandem.spec.kv_type import CodeType
from tandem.spec.model import ModelSpec
from tandem.spec.operations import Operation
from tandem.spec.precision import Precision

_HALF_BYTES = 2


class MeasuredCard(MeasuredAttention):
    """Linear maps, attention and the quantizing of keys and values as measured; the rest by rates.

    Attention was measured in one shape: another model's decode takes in proportion to a token's
    keys and values, its prompts to a pair's arithmetic.

    Args:
        pair_flops: of a query token and a key that it sees.

    Raises:
        ConfigError: the profile has no measurements of the wanted types.
    """

    def __init__(
        self,
        measured: AcceleratorMeasurements,
        model: ModelSpec,
        precision: Precision,
        pair_flops: float,
        rates: DeviceRates,
    ) -> None:
        self.head = linear_of(measured.linear, str(precision.weights))
        formats = set(precision.quantized.values())
        self.linear = codes_of(measured.linear, formats.pop()) if formats else self.head
        self.attention = attention_of(measured.attention, str(precision.kv))
        self.prompts = _prompts_of(measured, str(precision.kv))
        self._by_pairs = _by_pairs(self.prompts.surface)
        self._rates, self._model = rates, model
        self._activation_bytes = precision.activations.size_bytes
        self._scale = 2 * model.kv_size / self.attention.kv_elements
        self._prompt_scale = pair_flops / self.prompts.pair_flops
        self._quantized_per_s = _appended_per_s(measured, precision)

    def stage_s(self, operations: Iterable[Operation], tokens: int) -> float:
        """Operations outside attention on `tokens` tokens."""
        if not tokens:
            return 0.0
        return sum(self._operation_s(op, tokens) for op in operations)

    def head_s(self, rows: int) -> float:
        """Final norm and logits of `rows` rows."""
        elements = self._model.hidden_size * self._model.vocab_size
        return self.head.surface.at(elements, rows).seconds if rows else 0.0

    def append_s(self, tokens: int) -> float | None:
        """Of tokens whose keys and values are quantized into one layer's pages; None: pages hold
        none of few bits.
        """
        if self._quantized_per_s is None:
            return None
        elements = tokens * 2 * self._model.kv_size
        return elements / self._quantized_per_s + self._rates.kernel_overhead_s

    def decode_s(self, work: AttentionWork) -> float:
        """By rows and their mean context."""
        if not work.tokens:
            return 0.0
        keys = max(1.0, work.keys / work.tokens)
        return self.attention.surface.at(work.tokens, keys).seconds * self._scale

    def prompt_s(self, work: AttentionWork) -> float:
        """As of whole prompts with as many pairs, in which a token sees as many keys; fewer than
        one of them: a part of a prompt, whose other tokens have been read before.
        """
        if not work.pairs:
            return 0.0
        sizes = self._by_pairs.second
        pairs = min(max(_pairs(2 * work.pairs / work.tokens - 1), sizes[0]), sizes[-1])
        return self._by_pairs.at(work.pairs / pairs, pairs).seconds * self._prompt_scale

    def _operation_s(self, op: Operation, tokens: int) -> float:
        if op.kind == "linear" or op.experts is not None:
            return mapped_s(self.linear.surface, op, tokens)
        elements = op.weight_elements + op.activation_elements(tokens)
        size = elements * self._activation_bytes
        return cost_of(op.flops(tokens), size, 1, self._rates).total_s


def _pairs(tokens: float) -> float:
    """Of a query token and a key that it sees, in a prompt."""
    return tokens * (tokens + 1) / 2


def _by_pairs(times: Surface) -> Surface:
    """Over prompts and pairs of each, in which time is linear where arithmetic bounds it."""
    return replace(times, second=tuple(map(_pairs, times.second)))


def _prompts_of(measured: AcceleratorMeasurements, kind: str) -> PromptTimes:
    for times in measured.prompts:
        if times.kind == kind:
            return times
    raise ConfigError(
        f"the profile has no prompts' attention over a KV cache of {kind}; run `tandem profile`",
        param="kv_cache_dtype",
    )


def measured_rates(measured: AcceleratorMeasurements, kv: CodeType) -> QuantRates:
    """Of keys and values in 16 bits into pages of codes, and from there back.

    Raises:
        ConfigError: the profile has not measured that type.
    """
    for rates in measured.codes:
        if rates.kind == f"kv {kv}":
            speeds = rates.quantize_bytes_per_s, rates.dequantize_bytes_per_s
            return QuantRates(*(speed / _HALF_BYTES for speed in speeds))
    raise ConfigError(
        f"the profile has not quantized keys and values to {kv}; run `tandem profile`",
        param="kv_cache_dtype",
    )


def _appended_per_s(measured: AcceleratorMeasurements, precision: Precision) -> float | None:
    """Elements."""
    if not isinstance(precision.kv, CodeType):
        return None
    return measured_rates(measured, precision.kv).quantize_elements_per_s
