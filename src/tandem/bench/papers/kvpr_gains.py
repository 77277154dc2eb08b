"""KVPR's tables 3 and 4 as gains over 1: how far off, by which term, and what no term explains."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, product
from statistics import median

from tandem.bench.papers.cells import PaperCell, Role
from tandem.bench.papers.figures import load_figures
from tandem.bench.papers.kvpr_machine import (
    EFFICIENCIES,
    ELEMENT_BYTES,
    GPU_EFFICIENCY,
    LINK_BYTES_PER_S,
    MEMORY_BYTES_PER_S,
    PAPER,
    PEAK_FLOPS_PER_S,
    fetch_of,
)
from tandem.bench.papers.models import MODELS
from tandem.cost.kvpr.attention_read import unfused_attention_bytes
from tandem.cost.kvpr.generation import DecodeTime, decode_time
from tandem.cost.kvpr.recompute import RecomputeRates
from tandem.spec.parameters import layer_matrix_parameters

SPEED_UPS, GAINS = "tables 3, 4: speed-ups", "tables 3, 4: gains over 1"
# NVIDIA's data sheet of the A100, and its guide to matrix products: tiles of 128 x 128, of which
# each multiprocessor has one at a time.
_MULTIPROCESSORS, _TILE = 108, 128
_SLOW_LINK_BYTES_PER_S = 24e9  # as of other PCIe 4.0 x16 cards in `assets/accelerators`
_STEP = 0.002  # of the gains that are tried as one number per model


@dataclass(frozen=True, slots=True)
class Published:
    """One column of table 3 or 4.

    Attributes:
        baseline_s, time_s: of decoding: Hugging Face with everything fetched, and KVPR.
    """

    model: str
    rows: int
    prompt: int
    generate: int
    baseline_s: float
    time_s: float

    @property
    def name(self) -> str:
        """In cells."""
        return f"{self.model} {self.prompt}+{self.generate}"

    @property
    def speed_up(self) -> float:
        """The published one."""
        return self.baseline_s / self.time_s

    def decode(
        self, share: float = GPU_EFFICIENCY, link_bytes_per_s: float = LINK_BYTES_PER_S
    ) -> DecodeTime:
        """As predicted on an accelerator that reaches `share` of its peak.

        The first token comes out of the prefill, as in the tables' throughputs.
        """
        rates = RecomputeRates(link_bytes_per_s, share * PEAK_FLOPS_PER_S)
        fetch = fetch_of(self.model, self.rows, self.prompt)
        layers = MODELS[self.model].num_layers
        return decode_time(fetch, rates, layers=layers, generate=self.generate - 1)


def published() -> list[Published]:
    """All twelve."""
    figures = load_figures(PAPER)
    return [
        Published(model, table["batch"], *column)
        for table, model in (
            (figures["table3_opt_6_7b"], "OPT-6.7B"),
            (figures["table4_opt_13b"], "OPT-13B"),
        )
        for column in zip(
            table["prompt"],
            table["generate"],
            table["hf_decode_s"],
            table["kvpr_decode_s"],
            strict=True,
        )
    ]


def speed_up_cells(share: float) -> list[PaperCell]:
    """Speed-up of each cell (transfer only over with recomputation)."""
    return [
        PaperCell(
            PAPER,
            SPEED_UPS,
            f"{cell.name} speed-up",
            "x",
            cell.decode(share).gain,
            cell.speed_up,
            predictor=_gpu(share),
        )
        for cell in published()
    ]


def gain_cells(share: float) -> list[PaperCell]:
    """The same less 1: what is gained, with the seconds that were saved."""
    return [
        PaperCell(
            PAPER,
            GAINS,
            f"{cell.name} gain",
            "share",
            time.gain - 1,
            cell.speed_up - 1,
            predictor=_gpu(share),
            note=f"saves {time.transfer_only_s - time.total_s:.1f} s, published "
            f"{cell.baseline_s - cell.time_s:.1f}; baseline {cell.baseline_s:.1f} s, the link "
            f"{time.transfer_only_s:.1f}",
        )
        for cell in published()
        for time in [cell.decode(share)]
    ]


Speed = Callable[[Published], float]
"""A predicted speed-up."""


def gain_error(speed_up: Speed) -> float:
    """Median relative error of the twelve gains."""
    return median(abs((speed_up(cell) - 1) / (cell.speed_up - 1) - 1) for cell in published())


def term_cells() -> Iterator[PaperCell]:
    """The median error of the gains by each term that the equation leaves out, one at a time."""
    terms: list[tuple[str, Speed]] = [
        (_gpu(share), lambda cell, share=share: cell.decode(share).gain) for share in EFFICIENCIES
    ]
    terms += [
        (f"link at {_SLOW_LINK_BYTES_PER_S / 1e9:.0f} GB/s", _slow_link),
        ("products in whole waves of tiles", _in_waves),
        ("the layer's own compute not hidden", _computing),
    ]
    for name, speed_up in terms:
        yield _median_cell(name, gain_error(speed_up), Role.WHAT_IF)
    for name, error in (
        ("beside what the baseline takes beyond the link", gain_error(beside_the_rest)),
        ("the best single number per model", best_constants_error()),
    ):
        yield _median_cell(name, error, Role.CALIBRATED)  # these take the published cells' numbers


def beside_the_rest(cell: Published) -> float:
    """With the published baseline's time beyond the link's on both sides: it is not fetching, and
    recomputation does not shorten it.
    """
    time = cell.decode()
    rest_s = max(0.0, cell.baseline_s - time.transfer_only_s)
    return (time.transfer_only_s + rest_s) / (time.total_s + rest_s)


def best_constants_error() -> float:
    """Least median error of any predictor that says one gain per model, fitted to the answers."""
    gains: dict[str, list[float]] = {}
    for cell in published():
        gains.setdefault(cell.model, []).append(cell.speed_up - 1)
    tried = [
        [
            [abs(number * _STEP / gain - 1) for gain in own]
            for number in range(1, math.ceil(max(own) / _STEP) + 1)
        ]
        for own in gains.values()
    ]
    return min(median(chain(*errors)) for errors in product(*tried))


def _slow_link(cell: Published) -> float:
    return cell.decode(link_bytes_per_s=_SLOW_LINK_BYTES_PER_S).gain


def _in_waves(cell: Published) -> float:
    """Products take whole rounds of all multiprocessors: by the tokens of a mean step."""
    context = cell.prompt + cell.generate / 2
    tokens = cell.rows * cell.decode().recompute_share * context
    tiles = math.ceil(tokens / _TILE) * (MODELS[cell.model].kv_size // _TILE)
    waves = math.ceil(tiles / _MULTIPROCESSORS)
    return cell.decode(GPU_EFFICIENCY * tiles / (waves * _MULTIPROCESSORS)).gain


def _computing(cell: Published) -> float:
    """A layer's weights, and attention over its KV, read after its KV has come."""
    spec, time = MODELS[cell.model], cell.decode()
    context = cell.prompt + cell.generate // 2
    read = unfused_attention_bytes(cell.rows, context, spec.num_heads, spec.kv_size, ELEMENT_BYTES)
    layer_s = (layer_matrix_parameters(spec) * ELEMENT_BYTES + read) / MEMORY_BYTES_PER_S
    own_s = layer_s * spec.num_layers * (cell.generate - 1)
    return (time.transfer_only_s + own_s) / (time.total_s + own_s)


def _gpu(share: float) -> str:
    return f"GPU at {share:.0%} of peak"


def _median_cell(predictor: str, error: float, role: Role) -> PaperCell:
    what = "median error of the 12 gains"
    return PaperCell(PAPER, GAINS, what, "share", error, None, role, predictor)
