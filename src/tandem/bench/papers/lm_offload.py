"""LM-Offload: table 1's traffic, figure 3 and table 3.

Each framework gets one efficiency factor, on the resource that bounds it, from its cell of the
OPT-30B column at generation length 128. All other cells are predicted with it.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tandem.bench.papers.cells import PaperCell, Role
from tandem.bench.papers.figures import load_figures
from tandem.bench.papers.kvpr import (
    ELEMENT_BYTES,
    GPU_EFFICIENCY,
    MEMORY_BYTES_PER_S,
    PEAK_FLOPS_PER_S,
)
from tandem.bench.papers.models import MODELS
from tandem.cost.from_model import offload_workload
from tandem.cost.lm_offload.quantization import memory_bound_rates
from tandem.cost.lm_offload.tasks import OffloadRates, generation_time
from tandem.cost.lm_offload.workload import OffloadPolicy, OffloadWorkload
from tandem.cost.rates import DeviceRates

PAPER = "lm-offload"
CALIBRATION_MODEL, CALIBRATION_LENGTH = "OPT-30B", 128
PROMPT = 64
GPU_BATCH = 64  # section 3.1
LINK_BYTES_PER_S = 32e9  # table 4: 64 GB/s in both directions together
CPU_BYTES_PER_S = 2 * 8 * 2933e6 * 8  # Intel's data sheet: 8 channels of DDR4-2933 per socket
CPU_FLOPS_PER_S = 56 * 2.0e9 * 64  # as above: 2.0 GHz, two AVX-512 FMA units, float32
EFFICIENT = 0.8
# Table 1's traffic implies 29.6% and 70.5% of the weights on the host; whole percents.
IMPLIED_WEIGHTS = {"with_attention_offload": 0.30, "without_attention_offload": 0.70}
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Framework:
    """How a framework uses the machine; `bound` names the resource that its factor slows."""

    name: str
    bound: str
    attention_on_cpu: bool
    kv_bits: int = 16
    resident_weight_bits: int = 16


FRAMEWORKS = (
    Framework("FlexGen", "host memory", attention_on_cpu=True),
    Framework("ZeRO-Inference", "link", attention_on_cpu=False, resident_weight_bits=4),
    Framework("LM-Offload", "link", attention_on_cpu=False, kv_bits=4),
)


def workload_of(model: str, generate: int, rows: int) -> OffloadWorkload:
    """A block of table 3 or figure 3."""
    batches = math.ceil(rows / GPU_BATCH)
    return offload_workload(
        MODELS[model], prompt=PROMPT, generate=generate, rows=rows, batches=batches
    )


def rates_of(link_share: float, host_share: float) -> OffloadRates:
    """The machine of table 4 by its data sheets; the shares are what is reached of them."""
    quant = memory_bound_rates(4, MEMORY_BYTES_PER_S)
    link = link_share * LINK_BYTES_PER_S
    return OffloadRates(
        link,
        link,
        DeviceRates(MEMORY_BYTES_PER_S, GPU_EFFICIENCY * PEAK_FLOPS_PER_S, 0.0),
        DeviceRates(host_share * CPU_BYTES_PER_S, CPU_FLOPS_PER_S, 0.0),
        quant,
        memory_bound_rates(4, CPU_BYTES_PER_S),
    )


@dataclass(frozen=True, slots=True)
class Table3Cell:
    """One entry of table 3."""

    framework: Framework
    model: str
    generate: int
    rows: int
    weights_on_host: float
    published: float

    @property
    def calibrates(self) -> bool:
        """Whether its framework's factor comes from here."""
        return (self.model, self.generate) == (CALIBRATION_MODEL, CALIBRATION_LENGTH)

    def predicted(self, factor: float) -> float:
        """Tokens per second with a factor on the framework's bounding resource."""
        policy = OffloadPolicy(
            self.weights_on_host,
            attention_on_cpu=self.framework.attention_on_cpu,
            kv_bits=self.framework.kv_bits,
            resident_weight_bits=self.framework.resident_weight_bits,
        )
        link, host = (factor, 1.0) if self.framework.bound == "link" else (1.0, factor)
        workload = workload_of(self.model, self.generate, self.rows)
        return generation_time(workload, policy, rates_of(link, host)).tokens_per_s


def table3() -> Iterator[Table3Cell]:
    """All entries of table 3."""
    table = load_figures(PAPER)["table3"]
    for framework in FRAMEWORKS:
        for model, columns in table[framework.name].items():
            on_gpu = columns.get("wg", [100] * len(table["len"]))
            for index, generate in enumerate(table["len"]):
                yield Table3Cell(
                    framework,
                    model,
                    generate,
                    columns["bsz"][index],
                    1 - on_gpu[index] / 100,
                    columns["tput"][index],
                )


def solve_factor(predict: Callable[[float], float], published: float) -> float:
    """The factor between 1e-4 and 1 at which a rising prediction meets what was published."""
    low, high = 1e-4, 1.0
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if predict(middle) < published else (low, middle)
    return math.sqrt(low * high)


def factors() -> dict[str, float]:
    """Each framework's factor."""
    return {
        cell.framework.name: solve_factor(cell.predicted, cell.published)
        for cell in table3()
        if cell.calibrates
    }


def lm_offload_cells() -> list[PaperCell]:
    """Table 1, table 3 with its baselines, figure 3, and what efficient kernels would give."""
    return [*table1_cells(), *table3_cells(), *_efficient_cells(), *figure3_cells()]


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


def table3_cells() -> list[PaperCell]:
    """Throughputs, by one factor per framework, by one number per framework and by a constant."""
    cells = list(table3())
    factor = factors()
    number = {cell.framework.name: cell.published for cell in cells if cell.calibrates}
    constant = math.prod(number.values()) ** (1 / len(number))
    found: list[PaperCell] = []
    for cell in cells:
        name = cell.framework.name
        bound = f"{name}: {factor[name]:.1%} of the {cell.framework.bound}"
        if cell.calibrates:
            found.append(_entry(cell, cell.predicted(factor[name]), bound, Role.CALIBRATED))
            continue
        found.append(_entry(cell, cell.predicted(factor[name]), bound, Role.SCORED))
        found.append(_entry(cell, number[name], f"{name}: one number", Role.BASELINE))
        found.append(_entry(cell, constant, f"{name}: a constant", Role.BASELINE))
    return found


def _entry(cell: Table3Cell, predicted: float, predictor: str, role: Role) -> PaperCell:
    name = f"{cell.framework.name} {cell.model} {cell.generate} tokens"
    return PaperCell(PAPER, "table 3", name, "tokens/s", predicted, cell.published, role, predictor)


def _efficient_cells() -> list[PaperCell]:
    """Both resources at 80% of their data sheets: published cells are below this."""
    return [
        _entry(cell, cell.predicted(EFFICIENT), f"{EFFICIENT:.0%} of the bound", Role.WHAT_IF)
        for cell in table3()
        if cell.generate == CALIBRATION_LENGTH
    ]


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
