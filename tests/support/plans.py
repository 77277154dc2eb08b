"""Plans as files, for tests."""

from pathlib import Path

from tandem.plan.online import OnlinePlan
from tandem.plan.plan_file import PlanFile, PlannedModel
from tandem.plan.weights import WeightPlacement
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision

PLAN = OnlinePlan(
    strategy="ride-along",
    weights=(WeightPlacement(0, 0),),
    device_blocks=10,
    host_blocks=20,
    block_size=64,
    max_model_len=640,
    max_num_seqs=8,
    max_num_batched_tokens=128,
    max_host_seqs=4,
)


def plan_of(num_layers: int, *, host_only: bool = False) -> PlanFile:
    """A plan for a model that there is not, all of whose layers are resident."""
    return PlanFile(
        model_name="tiny",
        model=PlannedModel("llama", num_layers, 64, 128, 4, 2, 16, 1000, 123_456),
        hardware="a machine",
        host_only=host_only,
        dtype="float32",
        kv_cache_dtype="float32",
        cpu_kv_dtype="auto",
        quantization="auto",
        precision="float32",
        plan=OnlinePlan.from_object(
            PLAN.to_object()
            | {"weights": [{"first_layer": 0, "last_layer": num_layers - 1, "home": "resident"}]}
        ),
    )


def saved(
    path: Path, plan: OnlinePlan, spec: ModelSpec, precision: Precision, *, host_only: bool
) -> Path:
    """A plan that an engine made, in a file."""
    planned = PlanFile(
        model_name="any",
        model=PlannedModel.of(spec),
        hardware="this machine",
        host_only=host_only,
        dtype=str(precision.weights),
        kv_cache_dtype=str(precision.kv),
        cpu_kv_dtype="auto",
        quantization="auto",
        precision=str(precision),
        plan=plan,
    )
    path.write_text(planned.to_json(), "utf-8")
    return path
