"""LM-Offload's table 3: three frameworks, four models, five lengths.

Each framework gets one efficiency factor, on the resource that bounds it, from its cell of the
OPT-30B column at generation length 128. All other cells are predicted with it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tandem.bench.papers.cells import PaperCell, Role
from tandem.bench.papers.figures import load_figures
from tandem.bench.papers.lm_offload_machine import rates_of, solve_factor, workload_of
from tandem.cost.lm_offload.tasks import generation_time
from tandem.cost.lm_offload.workload import OffloadPolicy

PAPER = "lm-offload"
CALIBRATION_MODEL, CALIBRATION_LENGTH = "OPT-30B", 128
EFFICIENT = 0.8


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


def factors() -> dict[str, float]:
    """Each framework's factor."""
    return {
        cell.framework.name: solve_factor(cell.predicted, cell.published)
        for cell in table3()
        if cell.calibrates
    }


def calibration_cells() -> dict[str, float]:
    """Tokens per second that each framework's factor comes from: its one number as well."""
    return {cell.framework.name: cell.published for cell in table3() if cell.calibrates}


def constant() -> float:
    """One answer to everything: the geometric mean of those."""
    numbers = calibration_cells().values()
    return math.prod(numbers) ** (1 / len(numbers))


def table3_cells() -> list[PaperCell]:
    """Throughputs, by one factor per framework, by one number per framework and by a constant."""
    cells = list(table3())
    factor = factors()
    number = calibration_cells()
    found: list[PaperCell] = []
    for cell in cells:
        name = cell.framework.name
        bound = f"{name}: {factor[name]:.1%} of the {cell.framework.bound}"
        if cell.calibrates:
            found.append(_entry(cell, cell.predicted(factor[name]), bound, Role.CALIBRATED))
            continue
        found.append(_entry(cell, cell.predicted(factor[name]), bound, Role.SCORED))
        found.append(_entry(cell, number[name], f"{name}: one number", Role.BASELINE))
        found.append(_entry(cell, constant(), f"{name}: a constant", Role.BASELINE))
    return found


def _entry(cell: Table3Cell, predicted: float, predictor: str, role: Role) -> PaperCell:
    name = f"{cell.framework.name} {cell.model} {cell.generate} tokens"
    return PaperCell(PAPER, "table 3", name, "tokens/s", predicted, cell.published, role, predictor)


def efficient_cells() -> list[PaperCell]:
    """Both resources at 80% of their data sheets: published cells are below this."""
    return [
        _entry(cell, cell.predicted(EFFICIENT), f"{EFFICIENT:.0%} of the bound", Role.WHAT_IF)
        for cell in table3()
        if cell.generate == CALIBRATION_LENGTH
    ]
