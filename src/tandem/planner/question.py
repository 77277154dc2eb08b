"""What the planner is asked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Literal

from tandem.cost.rates import accelerator_rates
from tandem.profiling.shared_link import APART, both_ways
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import HardwareSpec
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision
from tandem.spec.workload import RequestShape, Workload, are_alike

if TYPE_CHECKING:
    from tandem.profiling.measurements import AcceleratorMeasurements, HostMeasurements

USUAL_STEP_TOKENS = 2048
"""As an engine's that is told nothing else."""

_LONG_PROMPT = 2.0
"""Tokens in the mean: shorter ones are of one token, all or nearly all."""

Objective = Literal["throughput", "latency"]
OBJECTIVES: tuple[Objective, ...] = ("throughput", "latency")


def parse_objective(text: str) -> Objective:
    """Read an objective's name.

    Raises:
        ConfigError: neither of them.
    """
    for objective in OBJECTIVES:
        if text == objective:
            return objective
    raise ConfigError(
        f"unknown objective '{text}'; use one of: {', '.join(OBJECTIVES)}", param="objective"
    )


@dataclass(frozen=True, slots=True)
class Lengths:
    """A workload's requests in means, which is what a steady state depends on.

    Attributes:
        requests: their number.
        prompt_tokens, generated_tokens: means.
        context_tokens: tokens before the one that is decoded, a mean over all decoded tokens.
        context_deviation: likewise their standard deviation.
        prompt_unevenness: mean square of prompts' lengths over the square of their mean, 1 if all
            are equally long: the tokens of long prompts are many, and see many.
        longest_tokens: of the longest request, prompt and output together.
        shapes: the requests themselves, if they are known.
    """

    requests: int
    prompt_tokens: float
    generated_tokens: float
    context_tokens: float
    longest_tokens: int
    duration_s: float
    context_deviation: float = 0.0
    prompt_unevenness: float = 1.0
    shapes: tuple[RequestShape, ...] = field(default=(), compare=False, repr=False)

    @staticmethod
    def of(workload: Workload) -> "Lengths":
        """Means over all requests."""
        shapes = workload.requests
        generated = sum(shape.generated_tokens for shape in shapes)
        weighted = sum(
            shape.generated_tokens * (shape.prompt_tokens + shape.generated_tokens / 2)
            for shape in shapes
        )
        prompt = sum(shape.prompt_tokens for shape in shapes) / len(shapes)
        square = sum(shape.prompt_tokens**2 for shape in shapes) / len(shapes)
        return Lengths(
            requests=len(shapes),
            prompt_tokens=prompt,
            generated_tokens=generated / len(shapes),
            context_tokens=weighted / generated,
            context_deviation=_context_deviation(shapes, weighted / generated),
            prompt_unevenness=square / prompt**2,
            longest_tokens=max(shape.prompt_tokens + shape.generated_tokens for shape in shapes),
            duration_s=workload.duration_s,
            # jobs ask often whether all are alike: of one that is there many times, soon told
            shapes=shapes[:1] * len(shapes) if are_alike(shapes) else shapes,
        )

    def to_object(self) -> dict[str, float]:
        """The means by name, for JSON."""
        left_out = "context_deviation", "prompt_unevenness", "shapes"
        names = [f.name for f in fields(self) if f.name not in left_out]
        return {name: getattr(self, name) for name in names}

    @property
    def usual(self) -> RequestShape:
        """A mean request, in whole tokens."""
        return RequestShape(round(self.prompt_tokens), max(1, round(self.generated_tokens)))

    @property
    def total_tokens(self) -> float:
        """Of a mean request when it ends."""
        return self.prompt_tokens + self.generated_tokens

    @property
    def prompt_seen_tokens(self) -> float:
        """Of a prompt whose middle token sees as many as the mean token of all prompts does."""
        return self.prompt_tokens * self.prompt_unevenness

    @property
    def prompts_are_rows(self) -> bool:
        """Whether a prompt that is read is hardly more of a sweep than a row that decodes: the
        tokens of longer ones vary from sweep to sweep by more than the rows do.
        """
        return self.prompt_tokens < _LONG_PROMPT

    @property
    def later_tokens(self) -> float:
        """After the first one, which the prompt gives."""
        return self.generated_tokens - 1

    @property
    def decode_sweeps(self) -> float:
        """For which a request has a place after its prompt: at least one, in which it ends."""
        later = self.generated_tokens - 1
        return later if later > 1.0 else 1.0


@dataclass(frozen=True, slots=True)
class Question:
    """One planning problem.

    Attributes:
        device_bytes, host_bytes: memory that may be used, out of what the hardware has.
        tpot_bound_s: most time per output token that a request may see; None: any.
        max_num_batched_tokens, block_size: as the engine's.
        step_sizes: others that a plan may choose in place of `max_num_batched_tokens`.
        pinned_bytes: of the host's memory, what a batch job may have pinned; None: any of it.
        host_only: there is no accelerator; `hardware` is `host_alone`.
        measured, measured_card: times on the CPU, and on the accelerator, which take the place of
            rates.
    """

    model: ModelSpec
    hardware: HardwareSpec
    precision: Precision
    lengths: Lengths
    device_bytes: int
    host_bytes: int
    objective: Objective = "throughput"
    tpot_bound_s: float | None = None
    max_num_batched_tokens: int = USUAL_STEP_TOKENS
    block_size: int = 64
    host_only: bool = False
    measured: "HostMeasurements | None" = None
    step_sizes: tuple[int, ...] = ()
    measured_card: "AcceleratorMeasurements | None" = None
    pinned_bytes: int | None = None

    def asks_the_same_as(self, other: "Question") -> bool:
        """Whether the machines, or what was measured on them, differ at most."""
        return other == replace(
            self,
            hardware=other.hardware,
            device_bytes=other.device_bytes,
            host_bytes=other.host_bytes,
            measured=other.measured,
            measured_card=other.measured_card,
        )

    def takes_as_long_as(self, other: "Question") -> bool:
        """Whether the machines differ in their memory's size at most, so that what both hold takes
        equally long on them.
        """
        mine, its = self.hardware, other.hardware
        size = its.accelerator.memory_bytes
        accelerator = replace(mine.accelerator, memory_bytes=size)
        host = replace(mine.host, memory_bytes=its.host.memory_bytes)
        hardware = replace(mine, accelerator=accelerator, host=host)
        return other == replace(
            self,
            hardware=hardware,
            device_bytes=other.device_bytes,
            host_bytes=other.host_bytes,
        )

    def computes_as_fast_as(self, other: "Question") -> bool:
        """Whether the accelerators differ in their memory's size at most, and so do the questions
        otherwise.
        """
        size = other.hardware.accelerator.memory_bytes
        accelerator = replace(self.hardware.accelerator, memory_bytes=size)
        same = replace(self, hardware=other.hardware, device_bytes=other.device_bytes)
        return accelerator == other.hardware.accelerator and same == other

    def holds_as_much_as(self, other: "Question") -> bool:
        """Whether the machines differ in their rates at most."""
        return other == replace(self, hardware=other.hardware)

    @property
    def cohorts_are_of_use(self) -> bool:
        """Whether requests decode beside each other: those that end with their prompts would lie in
        a cohort for nothing.
        """
        return self.objective == "throughput" and self.lengths.later_tokens > 0

    @property
    def may_read_here(self) -> bool:
        """Whether prompts of requests on the host may be read on the accelerator: shorter ones than
        a block are not worth their way.
        """
        return not self.host_only and self.lengths.prompt_tokens > self.block_size

    @property
    def follows_rates(self) -> bool:
        """Whether all times do; else some were measured."""
        return self.measured is None and self.measured_card is None

    @property
    def tile_rows(self) -> int:
        """Rows that linear maps on the accelerator compute at a time."""
        return accelerator_rates(self.hardware, self.precision.activations).tile_rows

    @property
    def follows_lines(self) -> bool:
        """Whether times are rooflines of their work, without stairs."""
        rates = accelerator_rates(self.hardware, self.precision.activations)
        tiled = rates.tile_rows > 1 or (bool(self.precision.quantized) and rates.code_tile_rows > 1)
        return self.measured_card is None and not tiled

    def without_tiles(self) -> "Question":
        """Of an accelerator that is never slower, and as fast where tiles are whole."""
        card = replace(self.hardware.accelerator, tile_rows=None, code_tile_rows=None)
        return replace(self, hardware=replace(self.hardware, accelerator=card))

    @property
    def link_both_ways(self) -> float:
        """Shares of the link that both directions have at once, in sum, as far as measured."""
        return APART if self.measured_card is None else both_ways(self.measured_card)

    @property
    def movable_layers(self) -> int:
        """Layers that need not be resident: of a model with experts, those that have some."""
        return self.model.num_layers - len(self.model.dense_layers)

    @property
    def max_rows(self) -> int:
        """Most requests that can run at once, in steps of `max_num_batched_tokens`."""
        return self.most_rows()

    def most_rows(self, step_tokens: int = 0) -> int:
        """Likewise, in steps of a candidate's size."""
        if self.objective == "latency":
            return 1
        return min(self.lengths.requests, MAX_ROWS, self.step_of(step_tokens))

    @property
    def steps(self) -> tuple[int, ...]:
        """Sizes of steps as candidates name them: 0, and others that may be chosen."""
        others = {size for size in self.step_sizes if size != self.max_num_batched_tokens}
        return (0, *sorted(others))

    def step_of(self, step_tokens: int) -> int:
        """Most tokens of a step of a candidate that says so many; 0: it leaves that open."""
        return step_tokens or self.max_num_batched_tokens

    def allows(self, tpot_s: float) -> bool:
        """Whether a request may see this time per output token."""
        return self.tpot_bound_s is None or tpot_s <= self.tpot_bound_s

    def prompts_keep_up(self, decoding: int, served: float, step_tokens: int = 0) -> bool:
        """Whether a sweep that decodes `decoding` rows has room for prompts as fast as rows finish.

        More rows would never all be decoding: some would always wait for their prompts. One may be
        in excess, so that no room is lost to rounding.

        Args:
            served: tokens that a sweep gives, of rows that pass through in several sweeps as well.
            step_tokens: of a candidate.
        """
        if decoding <= 1 or self.objective == "latency":
            return True
        prompts = (served - 1) / self.lengths.decode_sweeps * self.lengths.prompt_tokens
        return decoding - 1 + prompts < (step_tokens or self.max_num_batched_tokens)


def _context_deviation(shapes: Sequence[RequestShape], mean_tokens: float) -> float:
    """Of the tokens before each that is decoded, about their mean."""
    generated = sum(shape.generated_tokens for shape in shapes)
    squares = 0.0
    for shape in shapes:
        middle = shape.prompt_tokens + shape.generated_tokens / 2 - mean_tokens
        squares += shape.generated_tokens * (middle**2 + shape.generated_tokens**2 / 12)
    return math.sqrt(squares / generated)


MAX_ROWS = 1024
"""Of an engine: beyond it, bookkeeping per step is what counts, which no term describes."""
