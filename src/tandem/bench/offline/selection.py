"""Which cells are run: the papers', or some of them."""

from collections.abc import Iterable, Sequence

from tandem.bench.offline.cell import CellName, OfflineCell, make_cell
from tandem.bench.offline.grid import GRID
from tandem.bench.offline.plans import ask, may_run
from tandem.bench.online.cell import Load
from tandem.planner.offline.policies import find_offline_policy
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.spec.errors import ConfigError

CELLS = (
    CellName("a4000", "park-egger", "opt-13b", Load(512, 32), 384),
    CellName("a100-40", "lm-offload", "opt-30b", Load(64, 128), 1280),
    CellName("a100-40", "kvpr", "opt-13b", Load(1024, 32), 512),
    CellName("t4", "g4dn.4xlarge", "llama-2-7b", Load(512, 64), 512),
    CellName("rtx4090", "desktop-ddr5", "llama-2-13b", Load(512, 128), 384),
    CellName("a100-80", "server-genoa", "llama-3.1-70b", Load(512, 64), 24),
)
"""Machines, models and lengths of Park & Egger, LM-Offload, KVPR and APEX, a desktop's, and a job
that is too small to hide the way of the weights.
"""
QUICK_CELLS = (CELLS[2], CELLS[3])


def check_policies(names: Iterable[str]) -> None:
    """Find out before a long run that they can be planned.

    Raises:
        ConfigError: one cannot.
    """
    for name in names:
        find_offline_policy(name)


def choose_cells(
    only: Sequence[str], layers: int | None, truth: Perturbation, *, quick: bool, grid: bool = False
) -> list[OfflineCell]:
    """Cells whose names contain any of `only`; all, if none is given.

    Args:
        layers: of each model; None: each cell's own number.
        grid: of the papers' points.

    Raises:
        ConfigError: there are none, or one has fewer layers than asked for; or both a few and the
            others are asked for.
    """
    if quick and grid:
        raise ConfigError(
            "--quick has no cells of --grid; leave one or the other out", param="grid"
        )
    named = GRID if grid else QUICK_CELLS if quick else CELLS
    found = [each for each in named if not only or any(text in str(each) for text in only)]
    if not found:
        known = "; ".join(map(str, named))
        asked = "' or '".join(only)
        raise ConfigError(f"no cell's name contains '{asked}'; there are: {known}", param="only")
    return [make_cell(each, layers or each.layers, truth) for each in found]


def check_room(cells: Iterable[OfflineCell]) -> tuple[list[OfflineCell], tuple[str, ...]]:
    """Find out before a long run which cells some plan fits, and say why others are left out.

    Raises:
        ConfigError: there are none.
    """
    fit: list[OfflineCell] = []
    left_out: list[str] = []
    for cell in cells:
        if may_run(ask(cell)):
            fit.append(cell)
        else:
            left_out.append(f"{cell}: left out, since nothing fits; raise --layers")
    if not fit:
        raise ConfigError("; ".join(left_out), param="layers")
    return fit, tuple(left_out)
