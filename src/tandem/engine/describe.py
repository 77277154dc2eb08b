"""What an engine decided when it loaded, in a few lines for a person."""

from collections.abc import Sequence

from tandem.engine.clients.client import Stats
from tandem.runtime.measures import OverlapTotals
from tandem.spec.units import format_size

_NOTE = "note: "


def describe_load(model_name: str, stats: Stats) -> list[str]:
    """Model, place and KV cache, then one line per decision that the user might not expect.

    Args:
        stats: `EngineStats` as plain values.
    """
    tiers = [tier for tier in stats["tiers"] if tier["total_blocks"]]
    lines = [
        f"{model_name} in {stats['dtype']} on {stats['accelerator']}; "
        f"up to {stats['max_model_len']} tokens per request",
        f"KV cache: {' + '.join(_tier(tier, len(tiers)) for tier in tiers)}; "
        f"strategy {stats['strategy']}{_pinned(stats['pinned_bytes'])}",
    ]
    return lines + [f"{_NOTE}{note}" for note in stats["notes"]]


def later_notes(description: Sequence[str], stats: Stats) -> list[str]:
    """Notes that an engine has made since `describe_load` described it."""
    return [note for note in stats["notes"] if f"{_NOTE}{note}" not in description]


def describe_overlap(stats: Stats) -> str | None:
    """How accelerator and CPU worked beside each other since start, in one line; None if the
    engine does not tell, or has done nothing.

    Args:
        stats: `EngineStats` as plain values.
    """
    if stats["overlap"] is None:
        return None
    totals = OverlapTotals(**stats["overlap"])
    idle, hidden = totals.accel_idle_share, totals.hidden_share
    if idle is None:
        return None
    attention = "" if hidden is None else f"; {hidden:.0%} of the CPU's attention beside its work"
    return f"the accelerator was idle for {idle:.1%} of the time{attention}"


def _pinned(size_bytes: int) -> str:
    return f"; {format_size(size_bytes)} of host memory locked for copies" if size_bytes else ""


def _tier(tier: Stats, num_tiers: int) -> str:
    size = format_size(tier["total_blocks"] * tier["block_bytes"])
    where = f" on the {tier['tier']}" if num_tiers > 1 else ""
    return f"{tier['total_blocks']} blocks of {tier['block_size']} tokens ({size}){where}"
