"""LM-Offload: table 1's traffic and figure 3; table 3 is a file of its own."""

from dataclasses import dataclass

from tandem.bench.papers.cells import PaperCell, Role
from tandem.bench.papers.figures import load_figures
from tandem.bench.papers.kvpr import ELEMENT_BYTES
from tandem.bench.papers.lm_offload_machine import rates_of, workload_of
from tandem.bench.papers.lm_offload_table3 import (
    EFFICIENT,
    PAPER,
    calibration_cells,
    constant,
    efficient_cells,
    factors,
    table3_cells,
)
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
    """FlexGen on OPT-30B, by table 3's factors: no number comes from this figure, but that one of
    its bars is FlexGen's cell there.

    Beside each bar FlexGen's one number, and the constant, as of table 3; and what both resources
    at 80% would give.
    """
    figure, factor = load_figures(PAPER)["fig3_tokens_per_s"], factors()
    link, host = factor["LM-Offload"], factor["FlexGen"]
    named = f"FlexGen: {host:.1%} of the host memory, {link:.1%} of the link"
    number = calibration_cells()["FlexGen"]
    cells: list[PaperCell] = []
    for bar in _BARS:
        published = figure[bar.case][bar.name]
        role = Role.CALIBRATED if bar == _CALIBRATED else Role.SCORED
        note = "" if role is Role.CALIBRATED else bar.note
        cells.append(bar.cell(bar.predicted(link, host), published, role, named, note))
        if role is Role.SCORED:
            cells.append(bar.cell(number, published, Role.BASELINE, "FlexGen: one number"))
            cells.append(bar.cell(constant(), published, Role.BASELINE, "FlexGen: a constant"))
        efficient = bar.predicted(EFFICIENT, EFFICIENT)
        bound = f"{EFFICIENT:.0%} of the bound"
        cells.append(bar.cell(efficient, published, Role.WHAT_IF, bound))
    return cells


@dataclass(frozen=True, slots=True)
class _Bar:
    """One bar of figure 3."""

    case: str
    name: str
    weight_bits: int
    kv_bits: int

    @property
    def note(self) -> str:
        """Why it is off."""
        if self.weight_bits == self.kv_bits == 16:
            return "FlexGen's link is not LM-Offload's"
        return "FlexGen's dequantization is not in equation 2's maximum"

    def predicted(self, link_share: float, host_share: float) -> float:
        """Tokens per second; the shares are what is reached of the data sheets."""
        policy = OffloadPolicy(
            IMPLIED_WEIGHTS[self.case],
            attention_on_cpu=self.case == "with_attention_offload",
            weight_bits=self.weight_bits,
            kv_bits=self.kv_bits,
        )
        workload, rates = workload_of("OPT-30B", 128, 640), rates_of(link_share, host_share)
        return generation_time(workload, policy, rates).tokens_per_s

    def cell(
        self, predicted: float, published: float, role: Role, predictor: str, note: str = ""
    ) -> PaperCell:
        """Beside what was published."""
        name = f"{self.name} {self.case}".replace("_", " ")
        return PaperCell(
            PAPER, "figure 3", name, "tokens/s", predicted, published, role, predictor, note
        )


_CALIBRATED = _Bar("with_attention_offload", "no_quant", 16, 16)
_BARS = (
    _CALIBRATED,
    _Bar("with_attention_offload", "best_quant", 4, 16),
    _Bar("without_attention_offload", "no_quant", 16, 16),
    _Bar("without_attention_offload", "quant_weights", 4, 16),
    _Bar("without_attention_offload", "quant_kv", 16, 4),
    _Bar("without_attention_offload", "quant_both", 4, 4),
)
