"""Attention in the programme: which part of the KV lies where, and what it takes."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from tandem.planner.relaxation.attention_prices import AttentionPrices, Line
from tandem.planner.relaxation.programme import Programme

Place = Literal["accelerator", "cpu", "lent"]
Form = list[tuple[int, float]]
"""A linear form of columns."""


@dataclass(frozen=True, slots=True)
class Part:
    """Layers of one window that compute in one place.

    Attributes:
        layers: column of their number.
        hosted: column of the same, times the share of decoding rows' KV on the host; None: none is.
        place: where they are computed; lent ones on the CPU in sweeps that read no prompt.
    """

    prices: AttentionPrices
    layers: int
    hosted: int | None
    place: Place

    def on_cpu(self, prompt_tokens: int) -> bool:
        """Whether the CPU computes them in a sweep that reads so many tokens of prompts."""
        return self.place == "cpu" or (self.place == "lent" and not prompt_tokens)


class Carried(NamedTuple):
    """What one kind of sweep carries.

    Attributes:
        rows: that decode, in the mean. prompt_tokens: of prompts.
        host_always: whether something goes to the host in every layer.
        prompts_on_device: most of the prompts whose KV may go to the accelerator; None: as much as
            of the rows.
        all_here: all prompts are attended on the accelerator.
        only_device: nothing is attended on the host.
    """

    rows: float
    prompt_tokens: int
    host_always: bool
    prompts_on_device: float | None
    all_here: bool
    only_device: bool


@dataclass(frozen=True, slots=True)
class AttentionForms:
    """Of all layers: seconds in the chain and on the CPU, in the programme's unit, and bytes in the
    host's memory, of the CPU and of copies.
    """

    chain: Form
    cpu: Form
    cpu_bytes: Form
    copied_bytes: Form


def attention_forms(
    programme: Programme, part: Part, carried: Carried, unit_s: float
) -> AttentionForms:
    """Adds the attention of one kind of sweep in one part of the layers."""
    prices, rows, tokens = part.prices, carried.rows, carried.prompt_tokens
    every = (part.layers, 1.0)
    on_cpu = part.on_cpu(tokens)
    only_device = carried.only_device
    device_prompts: Form = [every] if tokens else []
    host_prompts: Form = []
    if tokens and not carried.all_here:
        column = programme.column()
        _keep_within(programme, column, part, carried)
        device_prompts = [(column, 1.0)]
        host_prompts = [every, (column, -1.0)]
    hosted: Form = [(part.hosted, 1.0)] if part.hosted is not None and rows else []
    device: Form = [every, *((c, -f) for c, f in hosted)] if rows else []

    def form(line: Line, row_layers: Form, prompt_layers: Form, fixed: float, scale: float) -> Form:
        row, token = line.per_row * rows * scale, line.per_prompt_token * tokens * scale
        found: Form = [(part.layers, fixed * scale)]
        for column, factor in row_layers:
            found.append((column, factor * row))
        for column, factor in prompt_layers:
            found.append((column, factor * token))
        return found

    seconds = 1 / unit_s
    chain = programme.column()
    for line in prices.device:
        way = line + prices.back.each if on_cpu else line
        fixed = way.fixed + (prices.launch_s if only_device else 0.0)
        programme.at_most([*form(way, device, device_prompts, fixed, seconds), (chain, -1.0)], 0.0)
    if only_device:
        return AttentionForms([(chain, 1.0)], [], [], [])
    cpu = programme.column()
    for line in prices.host:
        programme.at_most(
            [*form(line, hosted, host_prompts, line.fixed, seconds), (cpu, -1.0)], 0.0
        )
    cpu_bytes = form(prices.host_bytes, hosted, host_prompts, prices.host_bytes.fixed, 1.0)
    copies: Form = []
    copied_bytes: Form = []
    if not on_cpu:
        fixed = prices.copies.fixed if carried.host_always else 0.0
        copies = form(prices.copies, hosted, host_prompts, fixed, seconds)
        copied_bytes = form(prices.copied_bytes, hosted, host_prompts, 0.0, 1.0)
    programme.at_most([*copies, (cpu, 1.0), (chain, -1.0)], 0.0)
    return AttentionForms([(chain, 1.0)], [(cpu, 1.0)], cpu_bytes, copied_bytes)


def _keep_within(programme: Programme, column: int, part: Part, carried: Carried) -> None:
    """Prompts' KV goes to the accelerator at most as often as rows finish there."""
    most = carried.prompts_on_device
    entries: Form = [(column, 1.0), (part.layers, -1.0 if most is None else -most)]
    if most is None and part.hosted is not None:
        entries.append((part.hosted, 1.0))
    programme.at_most(entries, 0.0)
