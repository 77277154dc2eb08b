"""What strategies do in a step, side by side, as text."""

import shutil
from collections.abc import Iterator, Sequence

from tandem.bench.overlap import StrategyOverlap
from tandem.cli.plan_gantt import gantt_text

_NARROWEST, _WIDEST = 40, 160
_MARGIN = 12  # of a row's name


def overlap_text(outcomes: Sequence[StrategyOverlap], width: int | None = None) -> Iterator[str]:
    """The lines to print.

    Args:
        width: characters of a row's time; None: what the terminal has room for.
    """
    if width is None:
        columns = shutil.get_terminal_size().columns
        width = min(max(columns - _MARGIN, _NARROWEST), _WIDEST)
    yield "In virtual time: the scheduler and its programs are real, their times are as described."
    for each in outcomes:
        yield ""
        yield from gantt_text(each.cycle, f"{each.strategy}: a step", width, each.layers)
        yield f"  {_shares(each)}"


def _shares(each: StrategyOverlap) -> str:
    totals = each.totals
    idle, hidden = totals.accel_idle_share, totals.hidden_share
    said = [f"{each.tokens_per_s:,.0f} tokens/s", f"accelerator idle {idle or 0:.0%}"]
    if hidden is not None:
        said.append(f"CPU attention {totals.cpu_attention_s / totals.step_s:.0%} of the time")
        said.append(f"of it hidden {hidden:.0%}")
    if each.ways:
        said.append(f"ways: {', '.join(each.ways)}")
    return f"over {totals.steps} steps: {'; '.join(said)}"
