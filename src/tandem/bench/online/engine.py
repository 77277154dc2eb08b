"""An engine that executes a plan on a cell's emulated accelerator."""

from pathlib import Path
from tempfile import TemporaryDirectory

from tandem.bench.online.bed import Bed
from tandem.bench.online.cell import OnlineCell
from tandem.bench.online.plans import Planned, prices_of
from tandem.engine.building.paced import PacedEngine, build_paced_core
from tandem.engine.building.paced_machine import PacedOptions
from tandem.engine.sizing.plan_options import engine_config
from tandem.planner.plan_file import plan_file
from tandem.runtime.paced.executor import PacedClock


def build_engine(
    cell: OnlineCell,
    bed: Bed,
    planned: Planned,
    clock: PacedClock,
    *,
    journaled: bool = False,
) -> PacedEngine:
    """From the plan's file, as `--plan` does.

    Args:
        journaled: keep its programs, to be executed again.
    """
    question, plan = planned.question, planned.plan
    assert plan is not None, f"{planned.policy} cannot run this"
    with TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        path.write_text(plan_file(cell.model_name, question, plan).to_json(), "utf-8")
        given = {
            "model": cell.model_name,
            "plan": str(path),
            "gpu_memory": str(question.device_bytes),
            "cpu_memory": str(question.host_bytes),
            "enable_prefix_caching": False,
        }
        options = PacedOptions(
            perturbation=cell.truth, cores=bed.cores, cache_bytes=bed.cache_bytes
        )
        return build_paced_core(
            engine_config(given),
            cell.model,
            cell.hardware,
            options,
            prices=prices_of(question, plan),
            clock=clock,
            pool=bed.pool(),
            journaled=journaled,
        )
