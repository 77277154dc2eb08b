"""What attention costs one layer of a sweep: linear in the tokens that decode and in those of
prompts.
"""

from dataclasses import dataclass

from tandem.cost.rates import DeviceRates, LinkRates, accelerator_rates, d2h_rates, h2d_rates
from tandem.cost.stage import append_cost, partial_bytes, staged_qkv_bytes
from tandem.memory.page import KVPageSpec
from tandem.planner.question import Question
from tandem.spec.layer_operations import layer_operations
from tandem.spec.operations import default_stages

_FP32_BYTES = 4
_KERNELS = 2  # on the accelerator: to append, and to attend
_ROUNDED = 0.5
"""Keys and pairs are counted in whole numbers."""


@dataclass(frozen=True, slots=True)
class Line:
    """A cost: `fixed + per_row * rows + per_prompt_token * tokens`."""

    fixed: float = 0.0
    per_row: float = 0.0
    per_prompt_token: float = 0.0

    def __add__(self, other: "Line") -> "Line":
        return Line(
            self.fixed + other.fixed,
            self.per_row + other.per_row,
            self.per_prompt_token + other.per_prompt_token,
        )

    @property
    def each(self) -> "Line":
        """Without what is fixed."""
        return Line(0.0, self.per_row, self.per_prompt_token)

    def at(self, rows: float, prompt_tokens: float = 0.0) -> float:
        """Of so many."""
        return self.fixed + self.per_row * rows + self.per_prompt_token * prompt_tokens


@dataclass(frozen=True, slots=True)
class AttentionPrices:
    """One layer of one window.

    Attributes:
        device: seconds on the accelerator are at least each of these; launches are `launch_s`.
        host: likewise on the CPU.
        copies: seconds of the way to the host and back. back: of the way from the CPU to the
            accelerator and back, where the layer is computed on the CPU.
        host_bytes: read and written in the host's memory by attention; copied_bytes: by copies.
    """

    device: tuple[Line, Line]
    host: tuple[Line, Line]
    copies: Line
    back: Line
    host_bytes: Line
    copied_bytes: Line
    launch_s: float


def attention_prices(question: Question, page: KVPageSpec, window: int) -> AttentionPrices:
    """Of a layer that sees `window` positions (0: all).

    Prompts read each of their keys once, however many tokens of theirs are read at a time; that
    they read those before them too is left out.
    """
    model, dtype, lengths = question.model, question.precision.activations, question.lengths
    device = accelerator_rates(question.hardware, dtype)
    facts = question.hardware.host
    host = DeviceRates(facts.memory_bandwidth_bytes_per_s, facts.flops_per_s, 0.0)
    operations = layer_operations(model)
    attend = default_stages(operations).attend.of(operations)
    pair_flops = sum(op.flops_per_pair for op in attend)
    seen = _seen(lengths.context_tokens + 1, window)
    middle = _seen((lengths.prompt_seen_tokens + 1) / 2, window)
    token_bytes = page.bytes_per_block_layer / page.block_size
    flops = Line(-_ROUNDED * pair_flops, pair_flops * seen, pair_flops * middle)
    queries = model.q_size * _FP32_BYTES
    read = Line(-_ROUNDED * token_bytes, token_bytes * seen + queries, token_bytes + queries)
    appended = _each(append_cost(model, 1, dtype, device).memory_s)
    written = _each(2 * token_bytes)
    there, result = staged_qkv_bytes(model, 1, 1, dtype), partial_bytes(model, 1)
    down, up = d2h_rates(question.hardware), h2d_rates(question.hardware)
    return AttentionPrices(
        device=(
            appended + _scaled(flops, 1 / device.flops_per_s),
            appended + _scaled(read, 1 / device.bytes_per_s),
        ),
        host=(
            _scaled(written, 1 / host.bytes_per_s) + _scaled(flops, 1 / host.flops_per_s),
            _scaled(written, 1 / host.bytes_per_s) + _scaled(read, 1 / host.bytes_per_s),
        ),
        copies=_copies(there, down, result, up),
        back=_copies(there, up, result, down),
        host_bytes=written + read,
        copied_bytes=_each(there + result),
        launch_s=_KERNELS * device.kernel_overhead_s,
    )


def _copies(there: float, way: LinkRates, result: float, back: LinkRates) -> Line:
    each = there / way.bytes_per_s + result / back.bytes_per_s
    return Line(way.latency_s + back.latency_s, each, each)


def _each(cost: float) -> Line:
    return Line(0.0, cost, cost)


def _scaled(line: Line, factor: float) -> Line:
    return Line(line.fixed * factor, line.per_row * factor, line.per_prompt_token * factor)


def _seen(context: float, window: int) -> float:
    return min(context, window) if window else context
