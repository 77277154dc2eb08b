"""What the demo draws: streams, tiers as bars, and the table at the end."""

from collections.abc import Sequence

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from tandem.demo.session import Outcome, Watched
from tandem.engine.core import KVLayout
from tandem.engine.frontend.tokenizer import Tokenizer
from tandem.engine.stats import EngineStats, TierStats
from tandem.spec.units import format_size

DEVICE_STYLE, HOST_STYLE = "green", "cyan"
_SHOWN_CHARACTERS = 150
_BAR_CELLS = 40


def streams(watched: Sequence[Watched], tokenizer: Tokenizer) -> Table:
    """All requests' text so far, one row each."""
    table = Table.grid(padding=(0, 1))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for entry in watched:
        text = " ".join(tokenizer.decode(entry.token_ids).split())
        line = Text(entry.request.shown[-60:] + " ", style="dim")
        cut = len(text) > _SHOWN_CHARACTERS
        line.append(("... " if cut else "") + text[-_SHOWN_CHARACTERS:], style="default")
        table.add_row(entry.request.title, line)
    return table


def kv_map(layout: KVLayout) -> Text:
    """A request's KV from its first token to its last, a cell per block."""
    text = Text()
    text.append("█" * layout.device_blocks_first, DEVICE_STYLE)
    text.append("▒" * (layout.num_blocks - layout.device_blocks_first), HOST_STYLE)
    return text


def tier_bar(tier: TierStats, style: str) -> Text:
    """Highest use of a tier's pool."""
    share = tier.peak_held_blocks / tier.total_blocks if tier.total_blocks else 0.0
    cells = max(round(share * _BAR_CELLS), 1 if tier.peak_held_blocks else 0)
    bar = Text("█" * cells, style)
    bar.append("·" * (_BAR_CELLS - cells), "dim")
    bar.append(
        f"  {tier.peak_held_blocks} of {tier.total_blocks} blocks "
        f"({format_size(tier.total_blocks * tier.block_bytes)})"
    )
    return bar


def tiers_panel(stats: EngineStats, outcome: Outcome) -> Panel:
    """Both tiers, and the long context's KV across them."""
    device, host = stats.tiers
    grid = Table.grid(padding=(0, 1))
    grid.add_row("accelerator KV", tier_bar(device, DEVICE_STYLE))
    grid.add_row("host KV", tier_bar(host, HOST_STYLE))
    for entry in outcome.watched[:1]:
        if entry.layout is not None:
            grid.add_row(entry.request.title, kv_map(entry.layout))
    caption = Text("█ on the accelerator  ", DEVICE_STYLE).append("▒ on the host", HOST_STYLE)
    return Panel(Group(grid, caption), title="where the KV cache lay", title_align="left")


def result_table(outcome: Outcome, plain: Outcome) -> Table:
    """One row per request: sizes, places, and whether the plain run gave the same tokens."""
    table = Table(title="what ran where", title_justify="left")
    table.add_column("request")
    for name in ("prompt", "output", "blocks on accelerator", "blocks on host"):
        table.add_column(name, justify="right")
    table.add_column("tokens = plain run", justify="right")
    for entry, reference in zip(outcome.watched, plain.watched, strict=True):
        layout = entry.layout
        same = entry.token_ids == reference.token_ids
        table.add_row(
            entry.request.title,
            str(len(entry.request.token_ids)),
            str(len(entry.token_ids)),
            "-" if layout is None else str(layout.device_blocks),
            "-" if layout is None else str(layout.host_blocks),
            Text("yes", "green") if same else Text("NO", "bold red"),
        )
    return table


def summary(outcome: Outcome, block_size: int) -> str:
    """Two lines in words."""
    stats, long = outcome.stats, outcome.watched[0]
    device = stats.tiers[0]
    tokens = len(long.request.token_ids) + len(long.token_ids)
    return (
        f"The long context ({tokens} tokens) needs more KV memory than the whole accelerator has "
        f"({device.total_blocks * block_size} tokens).\n"
        f"Attention ran on the accelerator for {stats.device_attention_tokens} tokens and on the "
        f"CPU for {stats.host_attention_tokens}, merged exactly where a context lies in both "
        "places; "
        f"{stats.num_steps} steps, {stats.preemptions} preemptions."
    )
