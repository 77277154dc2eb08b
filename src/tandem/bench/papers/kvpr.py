"""KVPR: table 1, tables 3 and 4 as speed-ups and as gains, and figure 7."""

from tandem.bench.papers.cells import PaperCell, Role, median_error
from tandem.bench.papers.figures import load_figures
from tandem.bench.papers.kvpr_gains import SPEED_UPS, gain_cells, speed_up_cells, term_cells
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
from tandem.cost.kvpr.column import ColumnWork, best_column, column_period
from tandem.cost.kvpr.recompute import RecomputeRates
from tandem.spec.parameters import layer_matrix_parameters

# Section 4.2.
FIGURE7_ROWS, FIGURE7_BATCHES = 32, 8
FIGURE7_PROMPTS, FIGURE7_GENERATES = (256, 512, 1024), (32, 128)
_TABLE1_LINK = 32 * 2**30  # the unit slip: MiB over 32 GiB/s


def kvpr_cells() -> list[PaperCell]:
    """Table 1, tables 3 and 4 beside what other terms would predict, and figure 7."""
    return [
        *table1_cells(),
        *speed_up_cells(GPU_EFFICIENCY),
        *_other_efficiencies(),
        *gain_cells(GPU_EFFICIENCY),
        *term_cells(),
        *figure7_cells(),
    ]


def table1_cells() -> list[PaperCell]:
    """Transfer and attention of one layer: batch 32, 1,024 tokens, FP16."""
    cells: list[PaperCell] = []
    for row in load_figures(PAPER)["table1"]["rows"]:
        model, heads = row["model"], MODELS[row["model"]].num_heads
        fetch = fetch_of(model, 32, 1024)
        size = fetch.rows * fetch.context * fetch.kv_bytes_per_token
        moved = unfused_attention_bytes(32, 1024, heads, fetch.kv_size, ELEMENT_BYTES)
        slip = "MiB over 32 GiB/s, as the column was computed"
        read = "KV and four passes over the scores at the data sheet's bandwidth"
        compute_us = moved / MEMORY_BYTES_PER_S * 1e6
        transfer_ms = size / _TABLE1_LINK * 1e3
        cells += [
            PaperCell(PAPER, "table 1", f"{model} KV cache", "MiB", size / 2**20, row["kv_mib"]),
            PaperCell(
                PAPER, "table 1", f"{model} PCIe", "ms", transfer_ms, row["pcie_ms"], note=slip
            ),
            PaperCell(
                PAPER, "table 1", f"{model} compute", "us", compute_us, row["compute_us"], note=read
            ),
        ]
    return cells


def _other_efficiencies() -> list[PaperCell]:
    return [
        PaperCell(
            PAPER,
            SPEED_UPS,
            "median error of the 12 speed-ups",
            "share",
            median_error(speed_up_cells(share)),
            None,
            Role.WHAT_IF,
            predictor=f"GPU at {share:.0%} of peak",
        )
        for share in EFFICIENCIES
    ]


def figure7_cells() -> list[PaperCell]:
    """Largest throughput speed-up of each model with weights offloaded, 8 batches of 32."""
    claims = load_figures(PAPER)["claims"]
    rates = RecomputeRates(LINK_BYTES_PER_S, GPU_EFFICIENCY * PEAK_FLOPS_PER_S)
    return [
        PaperCell(
            PAPER,
            "figure 7",
            f"{model} largest throughput speed-up",
            "x",
            max(
                _column_gain(model, prompt + generate // 2, rates)
                for prompt in FIGURE7_PROMPTS
                for generate in FIGURE7_GENERATES
            ),
            published,
            predictor=f"GPU at {GPU_EFFICIENCY:.0%} of peak",
        )
        for model, published in claims["throughput_speedup_max"].items()
    ]


def _column_gain(model: str, context: int, rates: RecomputeRates) -> float:
    """Speed-up in the steady state at a mean context."""
    spec = MODELS[model]
    fetch = fetch_of(model, FIGURE7_ROWS, context)
    weights = layer_matrix_parameters(spec)
    attention = unfused_attention_bytes(
        fetch.rows, context, spec.num_heads, spec.kv_size, ELEMENT_BYTES
    )
    compute_s = (weights * ELEMENT_BYTES + attention) / MEMORY_BYTES_PER_S
    work = ColumnWork(fetch, FIGURE7_BATCHES, weights * ELEMENT_BYTES, compute_s)
    return column_period(work, 0, rates).time_s / best_column(work, rates).time_s
