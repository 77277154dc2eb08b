"""A plan from a file decides what it says, or is refused before anything is loaded."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.blocks import small_plan
from tests.support.plans import PLAN, plan_of, saved
from tests.unit.engine.small_model import FLOAT32
from tests.unit.engine.small_model import SPEC as TWO_LAYERS

from tandem.engine.building.parts import build_parts
from tandem.engine.sizing.capacities import Capacities
from tandem.engine.sizing.memory_plan import plan_memory
from tandem.engine.sizing.plan_options import engine_config, require_settings
from tandem.engine.sizing.planned import bounded_pinned, require_as_planned, require_model
from tandem.memory.page import KVPageSpec
from tandem.plan.online import OnlinePlan
from tandem.plan.weights import WeightPlacement
from tandem.spec.accelerator import AcceleratorChoice
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.units import MIB
from tandem.spec.weight_format import WeightFormat

SPEC = replace(TWO_LAYERS, num_layers=1)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(saved(tmp_path / "plan.json", PLAN, SPEC, FLOAT32, host_only=False))


def test_the_plan_s_settings_are_the_configuration_s(path: str) -> None:
    config = engine_config({"model": "any", "plan": path, "seed": 3, "cpu_memory": "1GiB"})
    assert config == EngineConfig(
        "any",
        plan=path,
        seed=3,
        cpu_memory="1GiB",
        dtype="float32",
        kv_cache_dtype="float32",
        max_model_len=640,
        max_num_seqs=8,
        max_num_batched_tokens=128,
        strategy="ride-along",
        max_host_seqs=4,
    )
    require_settings(config, plan_of(1))


@pytest.mark.parametrize(
    "given",
    [
        {"max_num_seqs": 8},
        {"strategy": "ride-along", "kv_placement": "auto"},
        {"dtype": "auto", "host_layers": "auto"},
        {"accelerator": "emulated", "gpu_memory": "1GiB", "gpu_margin": "1MiB"},
    ],
)
def test_what_agrees_or_is_open_may_be_given(path: str, given: dict[str, object]) -> None:
    assert engine_config({"model": "any", "plan": path, **given}).max_num_seqs == 8


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_num_seqs": 64}, "--max-num-seqs 64 contradicts --plan .*, which says 8; leave it"),
        ({"max_host_seqs": 0}, "--max-host-seqs 0 contradicts --plan .*, which says 4"),
        ({"dtype": "float16"}, "--dtype float16 contradicts .*, which says float32"),
        ({"strategy": "gpu-only"}, "--strategy gpu-only contradicts"),
        ({"overlap": False}, "--no-overlap contradicts --plan .*, which says otherwise"),
        ({"placement": "homes.json"}, "--placement has no meaning beside --plan"),
        ({"host_layers": "cpu"}, "--host-layers has no meaning beside --plan"),
    ],
)
def test_what_contradicts_it_is_refused_by_name(
    path: str, given: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        engine_config({"model": "any", "plan": path, **given})


def test_a_plan_for_the_host_alone_contradicts_an_accelerator(tmp_path: Path) -> None:
    plan = replace(PLAN, strategy="gpu-only", host_blocks=0, max_host_seqs=0)
    path = str(saved(tmp_path / "plan.json", plan, SPEC, FLOAT32, host_only=True))
    assert engine_config({"model": "any", "plan": path}).accelerator == "none"
    with pytest.raises(ConfigError, match="--accelerator cuda contradicts"):
        engine_config({"model": "any", "plan": path, "accelerator": "cuda"})


def test_a_configuration_that_is_not_the_plan_s_is_refused(path: str) -> None:
    config = engine_config({"model": "any", "plan": path})
    with pytest.raises(ConfigError, match="--max-num-seqs 9 contradicts"):
        require_settings(replace(config, max_num_seqs=9), plan_of(1))


def test_another_model_is_refused_with_what_differs() -> None:
    planned = replace(plan_of(1), model=replace(plan_of(1).model, num_parameters=1))
    other = replace(SPEC, hidden_size=128, num_heads=8)
    with pytest.raises(ConfigError, match="hidden_size 64 instead of 128, num_heads 4 instead of"):
        require_model(planned, other)


def sized(plan: OnlinePlan, capacities: Capacities) -> OnlinePlan:
    config = EngineConfig("any", **replace(plan_of(1), plan=plan).settings)
    return plan_memory(config, SPEC, FLOAT32, capacities, planned=plan).plan


def test_pools_are_the_plan_s_and_not_what_would_fit() -> None:
    assert sized(PLAN, Capacities(64 * MIB, 64 * MIB, real=False)) == PLAN


@pytest.mark.parametrize(
    ("device", "host", "flag"), [(1, 64, "--gpu-memory 1MiB"), (64, 1, "--cpu-memory 1MiB")]
)
def test_what_does_not_fit_is_refused_with_numbers(device: int, host: int, flag: str) -> None:
    page = KVPageSpec.of_model(SPEC, dtype=DType.FLOAT32, block_size=64)
    plan = replace(PLAN, host_blocks=(2 * MIB) // page.bytes_per_block)
    with pytest.raises(ConfigError) as error:
        sized(plan, Capacities(device * MIB, host * MIB, real=False))
    message = error.value.message
    assert message.startswith("the plan cannot be executed: it needs")
    assert "KV" in message
    assert f"plan with {flag}" in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("{}", "it is no plan"),
        (plan_of(6).to_json().replace('"format": 1', '"format": 7', 1), "this version reads 1"),
        (plan_of(6).to_json()[:-40], "not JSON"),
        (plan_of(6).to_json(), "for another model, tiny"),
    ],
)
def test_an_engine_refuses_other_files_before_it_loads(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text, "utf-8")
    loaded: list[object] = []
    with pytest.raises(ConfigError, match=message):
        build_parts(
            engine_config({"model": "demo", "plan": path, "accelerator": "emulated"}),
            lambda *progress: loaded.append(progress),
        )
    assert not loaded


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot use plan .*: No such file.*make it anew"):
        engine_config({"model": "demo", "plan": str(tmp_path / "none")})


@pytest.mark.parametrize(
    ("weights", "remedy"),
    [
        (DType.BFLOAT16, "; plan with --dtype float32: here the host does the maths"),
        (DType.FLOAT32, "; plan for these types with --dtype and --kv-cache-dtype"),
    ],
)
def test_other_types_are_refused_with_what_works(weights: DType, remedy: str) -> None:
    planned = replace(plan_of(1), precision="bfloat16", host_only=False)
    held = replace(FLOAT32, weights=weights)
    with pytest.raises(ConfigError) as error:
        require_as_planned(planned, held, AcceleratorChoice("emulated"))
    assert remedy in error.value.message


def test_plans_for_fp8_go_with_engines_that_keep_it() -> None:
    fp8 = replace(FLOAT32, weights=DType.BFLOAT16, quantized={"q": WeightFormat(8, 64, True)})
    wide, planned = replace(fp8, quantized={}), replace(plan_of(1), host_only=False)
    cuda = AcceleratorChoice("cuda")
    for held, made_for, remedy in (
        (wide, fp8, "plan with --quantization none: FP8 is not kept here"),
        (fp8, wide, "plan anew, since plans keep FP8 as it is, or with --quantization none"),
    ):
        with pytest.raises(ConfigError) as error:
            require_as_planned(replace(planned, precision=str(made_for)), held, cuda)
        assert error.value.message.endswith(remedy)
    planned = replace(planned, precision=str(fp8))
    require_as_planned(planned, fp8, cuda)
    for home in ("cpu", "disk-cpu", "cpu-mlp"):
        plan = replace(planned.online, weights=(WeightPlacement(0, 0, home),))
        with pytest.raises(ConfigError, match="the CPU compute layers, whose kernels read no FP8"):
            require_as_planned(replace(planned, plan=plan), fp8, cuda)


def test_no_more_is_pinned_than_the_user_says() -> None:
    """Nor by a plan that comes in its place, which has the same bound."""
    plan = small_plan(("streamed",) * 4, streamed_rows=1)
    plan = replace(plan, host=replace(plan.host, pinned_bytes=MIB))
    planned = replace(plan_of(4), plan=plan)
    found = {
        wanted: bounded_pinned(planned, wanted).blocks.most_pinned_bytes
        for wanted in (None, "1MiB", "2GiB")
    }
    assert found == {None: None, "1MiB": MIB, "2GiB": 2 << 30}
    closer = replace(planned, plan=replace(plan, most_pinned_bytes=3 * MIB))
    assert bounded_pinned(closer, "2GiB").blocks.most_pinned_bytes == 3 * MIB
    with pytest.raises(ConfigError, match=r"pins 1.0 MiB of host memory, and 1023KiB may be"):
        bounded_pinned(planned, "1023KiB")
