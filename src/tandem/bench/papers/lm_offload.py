"""LM-Offload: table 1's traffic and figure 3; table 3 is a file of its own."""

from dataclasses import dataclass

from tandem.bench.papers.cells import PaperCell, Role
from tandem.bench.papers.figures import load_figures
from tandem.bench.papers.kvpr import ELEMENT_BYTES
from tandem.bench.papers.lm_offload_machine import rates_of, solve_factor, workload_of
from tandem.bench.papers.lm_offload_table3 import PAPER, efficient_cells, table3_cells
from tandem.cost.lm_offload.tasks import generation_time
from tandem.cost.lm_offload.workload import OffloadPolicy

# Table 1's traffic implies 29.6% and 70.5% of the weights on the host; whole percents.
IMPLIED_WEIGHTS = {"with_attention_offload": 0.30, "without_attention_offload": 0.70}
_GIB = 2**30


def lm_offload_cells() -> list[PaperCell]:
    """Table 1, table 3 with its baselines, figure 3, and what efficient kernels would give."""
    return [*table1_cells(), *table3_cells(), *efficient_cells(), *figure3_cells()]


def table1_cells() -> list[PaperCell]:
    """Bytes over the link per generated token of OPT-30B, all layers."""
    table = load_figures(PAPER)["table1_io_gb_per_token"]
    workload = workload_of("OPT-30B", 128, 640)
    scale = workload.layers * ELEMENT_BYTES / _GIB
    context = (workload.prompt + workload.generate) / 2
    cells: list[PaperCell] = []
    for case, share in IMPLIED_WEIGHTS.items():
        predicted = {
            "h2d_weights": share * workload.layer_weights * scale,
            "h2d_activation": workload.activations * scale,
            "d2h_activation": workload.activations * scale,
        }
        if case == "without_attention_offload":
            predicted["h2d_kv_old"] = workload.new_kv * context * scale
            predicted["d2h_kv_new"] = workload.new_kv * scale
        for name, value in predicted.items():
            cells.append(_traffic(case, name, value, table[case][name]))
    return cells


_TRAFFIC_NOTES = {
    "weights": "30% and 70% on the host, as the traffic implies; table 3 says 45%",
    "kv_old": "mean context (s + n) / 2; equation 18 has s + n / 2",
    "kv_new": "printed with one digit",
    "activation": "one hidden state per sequence and layer is 0.41 GiB",
}


def _traffic(case: str, name: str, predicted: float, published: float) -> PaperCell:
    direction, tensor = name.split("_", 1)
    role = Role.SCORED if tensor in ("weights", "kv_old") else Role.LISTED
    cell = f"{tensor} {direction}, {case.replace('_', ' ')}"
    note = _TRAFFIC_NOTES[tensor]
    return PaperCell(PAPER, "table 1", cell, "GiB", predicted, published, role, note=note)


def figure3_cells() -> list[PaperCell]:
    """FlexGen on OPT-30B; each placement's factor from its own unquantized bar."""
    figure = load_figures(PAPER)["fig3_tokens_per_s"]
    cells: list[PaperCell] = []
    for case, bars in (
        ("with_attention_offload", {"best_quant": (4, 16)}),
        (
            "without_attention_offload",
            {"quant_weights": (4, 16), "quant_kv": (16, 4), "quant_both": (4, 4)},
        ),
    ):
        base = _Bar(case, 16, 16)
        published = figure[case]["no_quant"]
        factor = solve_factor(base.predicted, published)
        cells.append(base.cell("no_quant", factor, published, Role.CALIBRATED))
        for name, (weight_bits, kv_bits) in bars.items():
            bar = _Bar(case, weight_bits, kv_bits)
            cells.append(bar.cell(name, factor, figure[case][name], Role.SCORED))
    return cells


@dataclass(frozen=True, slots=True)
class _Bar:
    """One bar of figure 3."""

    case: str
    weight_bits: int
    kv_bits: int

    def predicted(self, factor: float) -> float:
        on_cpu = self.case == "with_attention_offload"
        policy = OffloadPolicy(
            IMPLIED_WEIGHTS[self.case],
            attention_on_cpu=on_cpu,
            weight_bits=self.weight_bits,
            kv_bits=self.kv_bits,
        )
        rates = rates_of(1.0, factor) if on_cpu else rates_of(factor, 1.0)
        return generation_time(workload_of("OPT-30B", 128, 640), policy, rates).tokens_per_s

    def cell(self, name: str, factor: float, published: float, role: Role) -> PaperCell:
        bound = "host memory" if self.case == "with_attention_offload" else "link"
        return PaperCell(
            PAPER,
            "figure 3",
            f"{name} {self.case}".replace("_", " "),
            "tokens/s",
            self.predicted(factor),
            published,
            role,
            f"FlexGen: {factor:.1%} of the {bound}",
            "FlexGen's dequantization is not in equation 2's maximum"
            if role is Role.SCORED
            else "",
        )
