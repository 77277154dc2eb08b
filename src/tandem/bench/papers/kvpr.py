"""KVPR: table 1, and the speed-ups of tables 3 and 4."""

from statistics import median

from tandem.bench.papers.cells import PaperCell, Role, median_error
from tandem.bench.papers.figures import load_figures
from tandem.bench.papers.models import MODELS
from tandem.cost.from_model import kv_fetch
from tandem.cost.kvpr.attention_read import unfused_attention_bytes
from tandem.cost.kvpr.column import ColumnWork, best_column, column_period
from tandem.cost.kvpr.generation import DecodeTime, decode_time
from tandem.cost.kvpr.recompute import KVFetch, RecomputeRates
from tandem.spec.dtype import DType
from tandem.spec.parameters import layer_matrix_parameters

PAPER = "kvpr"
ELEMENT_BYTES = 2
LINK_BYTES_PER_S = 32e9  # sections 1 and 4: PCIe 4.0 x16
MEMORY_BYTES_PER_S = 1555e9  # NVIDIA's data sheet of the A100 40 GB
PEAK_FLOPS_PER_S = 312e12  # as above: FP16 tensor cores, dense
# Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU Clusters Using
# Megatron-LM" (arXiv 2104.04473), table 1: 142 TFLOP/s per A100 at hidden size 4096.
GPU_EFFICIENCY = 142 / 312
EFFICIENCIES = (0.3, 0.4, 0.6, 0.8, 1.0)
GAIN_TABLES = "tables 3, 4"
# Section 4.2.
FIGURE7_ROWS, FIGURE7_BATCHES = 32, 8
FIGURE7_PROMPTS, FIGURE7_GENERATES = (256, 512, 1024), (32, 128)
_TABLE1_LINK = 32 * 2**30  # the unit slip: MiB over 32 GiB/s


def fetch_of(model: str, rows: int, context: int) -> KVFetch:
    """One layer's KV cache in FP16."""
    return kv_fetch(MODELS[model], rows, context, DType.FLOAT16)


def predicted_decode(model: str, rows: int, prompt: int, generate: int, share: float) -> DecodeTime:
    """A cell of table 3 or 4 on an accelerator that reaches `share` of its peak.

    The first token comes out of the prefill, as in the tables' throughputs.
    """
    rates = RecomputeRates(LINK_BYTES_PER_S, share * PEAK_FLOPS_PER_S)
    layers = MODELS[model].num_layers
    return decode_time(fetch_of(model, rows, prompt), rates, layers=layers, generate=generate - 1)


def kvpr_cells() -> list[PaperCell]:
    """Table 1, tables 3 and 4, what other efficiencies would predict, and figure 7."""
    return [
        *table1_cells(),
        *gain_cells(GPU_EFFICIENCY),
        _gain_error(),
        *_other_efficiencies(),
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


def gain_cells(share: float) -> list[PaperCell]:
    """Speed-up of each cell of tables 3 and 4 (transfer only over with recomputation)."""
    cells: list[PaperCell] = []
    figures = load_figures(PAPER)
    for table, model in (("table3_opt_6_7b", "OPT-6.7B"), ("table4_opt_13b", "OPT-13B")):
        data = figures[table]
        for index, (prompt, generate) in enumerate(
            zip(data["prompt"], data["generate"], strict=True)
        ):
            predicted = predicted_decode(model, data["batch"], prompt, generate, share).gain
            published = data["hf_decode_s"][index] / data["kvpr_decode_s"][index]
            cells.append(
                PaperCell(
                    PAPER,
                    GAIN_TABLES,
                    f"{model} {prompt}+{generate} speed-up",
                    "x",
                    predicted,
                    published,
                    predictor=f"GPU at {share:.0%} of peak",
                )
            )
    return cells


def gain_error() -> float:
    """Median relative error of the 12 gains, speed-ups less 1: far more than of the speed-ups."""
    cells = gain_cells(GPU_EFFICIENCY)
    pairs = [(c.predicted, c.published) for c in cells if c.predicted and c.published]
    return median(abs((predicted - 1) / (published - 1) - 1) for predicted, published in pairs)


def _gain_error() -> PaperCell:
    what = "median error of the 12 gains (speed-up less 1)"
    by = f"GPU at {GPU_EFFICIENCY:.0%} of peak"
    return PaperCell(
        PAPER, GAIN_TABLES, what, "share", gain_error(), None, Role.LISTED, predictor=by
    )


def _other_efficiencies() -> list[PaperCell]:
    return [
        PaperCell(
            PAPER,
            GAIN_TABLES,
            "median error of the 12 speed-ups",
            "share",
            median_error(gain_cells(share)),
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
