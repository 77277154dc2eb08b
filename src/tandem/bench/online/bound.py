"""What no policy of a cell can exceed, from the accelerator alone and the host's own read rate."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from tandem.bench.online.window import Window
from tandem.cost.apex.overlap import attainable_gain
from tandem.planner.footprint import Footprint
from tandem.planner.held_blocks import may_run_more
from tandem.planner.option import Option
from tandem.planner.policies import POLICIES
from tandem.planner.question import Question
from tandem.planner.relaxation.whole_tiles import tiled_ceiling


@dataclass(frozen=True, slots=True)
class Bound:
    """Tokens per second.

    Attributes:
        how: where they come from, in words.
        of_plans: what no plan exceeds at the rates measured, nor what is executed of it, by a
            linear programme, or by whole tiles where that is less; it knows what requests on the
            host cost the accelerator, which `1 + B_c T / KV` does not.
    """

    tokens_per_s: float
    how: str
    of_plans: float

    @property
    def least_per_s(self) -> float:
        """The smaller of both, which is the one that holds: neither can be exceeded in the long
        run, though by a window whose requests are younger than in the mean.
        """
        return min(self.tokens_per_s, self.of_plans)


def bound_of(
    decodes_only: bool,
    read_bytes_per_s: float,
    question: Question,
    alone: Option,
    windows: Sequence[Window],
) -> Bound:
    """Decode only, with all weights resident: `1 + B_c T / KV_gpu` times the accelerator alone.

    Otherwise the linear programme's, at the rates that were measured. So it is where what requests
    hold decides how many run, of whom more may beside the host's than alone.

    Args:
        read_bytes_per_s: by the host's cores, of KV.
        alone, windows: what the accelerator alone would do, and did.
    """
    candidate = alone.candidate
    rates = replace(question, measured=None)
    footprint = Footprint(rates)
    of_plans = tiled_ceiling(rates, footprint, POLICIES["auto"])
    vary = may_run_more(rates, footprint.held)
    if vary or not decodes_only or candidate.elsewhere.away:
        return Bound(of_plans, "a linear programme at the rates measured", of_plans)
    executed = median(window.tokens_per_s for window in windows)
    page = footprint.page
    row_bytes = question.lengths.context_tokens * page.bytes_per_block / page.block_size
    sweep_s = median(window.period_s for window in windows)
    gain = attainable_gain(read_bytes_per_s, sweep_s, candidate.device_rows * row_bytes)
    how = f"1 + B_c T / KV, host reads {read_bytes_per_s / 1e9:.1f} GB/s"
    return Bound(executed * (1 + gain), how, of_plans)
