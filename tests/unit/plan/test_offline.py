"""Offline plans survive JSON; what does not add up is refused in one line."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tandem.plan.offline import FORMAT, OfflinePlan, TierBudget
from tandem.plan.share_terms import ShareTerms, TermLine
from tandem.plan.weights import WeightPlacement
from tandem.spec.errors import ConfigError

PLAN = OfflinePlan(
    weights=(
        WeightPlacement(0, 1),
        WeightPlacement(2, 2, "streamed"),
        WeightPlacement(3, 3, "disk_streamed"),
    ),
    batches=4,
    resident_rows=2,
    streamed_rows=3,
    cpu_rows=1,
    kv_dtype="float16",
    host_kv_dtype="int8",
    block_size=16,
    device_blocks=80,
    host_blocks=140,
    slot_blocks=128,
    max_model_len=160,
    prefill_tokens=2048,
    accelerator=TierBudget(1000, 100, 200, 300, 400),
    host=TierBudget(1000, 100, 200, 0, 0, 250),
    recomputed_tokens=32,
    quantized_layers="streamed",
    quantization="int4:64",
    prompts_on_host=True,
    threads=3,
    notes=("so it is",),
)


NONE = TermLine()
TERMS = ShareTerms(1, 1.0, 1.0, 1.0, 1.0, NONE, NONE, NONE, NONE, NONE, NONE)


def test_a_plan_survives_json() -> None:
    text = PLAN.to_json()
    assert OfflinePlan.from_json(text) == PLAN
    assert json.loads(text)["format"] == FORMAT
    assert "\n" not in text


MLPS = replace(
    PLAN,
    weights=(WeightPlacement(0, 0), WeightPlacement(1, 3, "host-mlp")),
    cpu_mlps=(3,),
    quantized_layers="all",
)


def test_mlps_on_the_cpu_survive_json_and_are_streamed_for_prompts() -> None:
    assert OfflinePlan.from_json(MLPS.to_json()) == MLPS
    assert (MLPS.shape.weights.mlps, MLPS.shape.mlps_on_cpu) == ((1, 2, 3), (3,))
    assert MLPS.layers.mlps_ever_on_cpu == (3,)
    assert MLPS.shape.over_prompts.loaded == (1, 2, 3)
    assert MLPS.shape.in_passes.loaded == (1, 2)
    assert not MLPS.shape.in_passes.reloads
    adapting = replace(MLPS, terms=replace(TERMS, mlps=TermLine(0.5, 0.1)), recomputed_tokens=0)
    assert OfflinePlan.from_json(adapting.to_json()) == adapting


def test_terms_of_before_have_no_mlps_on_the_cpu_and_one_line_of_attention() -> None:
    given = replace(PLAN, terms=TERMS, recomputed_tokens=0).to_object()
    del given["terms"]["mlps"], given["terms"]["returns_s"]
    assert OfflinePlan.from_object(given).terms == TERMS
    del given["terms"]["streamed_attention"]
    assert OfflinePlan.from_object(given).terms == TERMS


COLUMNS = replace(
    PLAN,
    weights=(WeightPlacement(0, 0, "host-mlp"), WeightPlacement(1, 3, "streamed")),
    quantized_layers="none",
    quantization="none",
    cpu_columns=256,
)


def test_columns_on_the_cpu_survive_json_and_are_streamed_for_prompts() -> None:
    assert OfflinePlan.from_json(COLUMNS.to_json()) == COLUMNS
    assert COLUMNS.shape.divided == (0, 1, 2, 3)
    assert COLUMNS.shape.over_prompts.loaded == (0, 1, 2, 3)
    assert COLUMNS.layers.cpu_columns == 256
    assert COLUMNS.layers.uses_cpu
    assert not replace(COLUMNS, cpu_columns=0).layers.uses_cpu
    assert not replace(COLUMNS, cpu_columns=0).shape.divided
    assert not COLUMNS.shape.cut
    read = WeightPlacement(0, 0, "disk_streamed"), *COLUMNS.weights[1:]
    assert replace(COLUMNS, weights=read).shape.divided == (1, 2, 3)


CUT = replace(
    COLUMNS, weights=(WeightPlacement(0, 3, "streamed"),), recomputed_tokens=0,
    cpu_attention_maps=True,
)  # fmt: skip


def test_attention_s_maps_on_the_cpu_survive_json() -> None:
    assert OfflinePlan.from_json(CUT.to_json()) == CUT
    assert CUT.shape.cut == CUT.shape.divided == (0, 1, 2, 3)
    assert CUT.layers.cpu_attention_maps
    assert "cpu_attention_maps" in CUT.to_json()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cpu_attention_maps": 1}, "cpu_attention_maps"),
        ({"cpu_columns": 0}, "of which the CPU computes cpu_columns, and these are 0"),
        ({"weights": COLUMNS.weights}, "cpu_attention_maps and layers with home 'host-mlp'"),
        ({"recomputed_tokens": COLUMNS.recomputed_tokens}, "recomputed_tokens and cpu_attention"),
    ],
)
def test_attention_s_maps_on_the_cpu_that_cannot_be_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        replace(CUT, **changes)
    assert "\n" not in error.value.message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cpu_columns": -1}, "cpu_columns must be at least 0"),
        ({"cpu_columns": "256"}, "cpu_columns"),
        ({"weights": (WeightPlacement(0, 3),)}, "with 0 streamed layers none does"),
        (
            {"weights": (WeightPlacement(0, 1), WeightPlacement(2, 3, "streamed"))},
            "with 2 streamed layers none does",
        ),
        ({"weights": MLPS.weights, "cpu_mlps": (3,)}, "cpu_columns and cpu_mlps"),
        (
            {"weights": (WeightPlacement(0, 3, "host"),), "cpu_layers": (3,),
             "recomputed_tokens": 0},
            "cpu_columns and cpu_layers",
        ),
        ({"weights": (WeightPlacement(0, 3, "disk_streamed"),)}, "all layers that come are on d"),
        (
            {"weights": (WeightPlacement(0, 3, "streamed"),), "weights_in_parts": True},
            "cpu_columns and weights_in_parts",
        ),
        ({"layers_overlap": True}, "cpu_columns and layers_overlap"),
        ({"quantized_layers": "all", "quantization": "int4:64"}, "cpu_columns and few bits"),
    ],
)  # fmt: skip
def test_columns_on_the_cpu_that_cannot_be_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        replace(COLUMNS, **changes)
    assert "\n" not in error.value.message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cpu_mlps": (0,)}, r"cpu_mlps \[0\] are not"),
        ({"cpu_mlps": (3, 2)}, "ascending"),
        ({"cpu_mlps": (1,)}, "which sweeps begin with"),
        ({"weights_in_parts": True}, "weights_in_parts and layers with home 'host-mlp'"),
        ({"quantized_layers": "streamed"}, "few bits in streamed layers and layers with home"),
        ({"weights": PLAN.weights}, "are not, ascending, layers with home 'host-mlp'"),
        (
            {"weights": (WeightPlacement(0, 3, "host-mlp", (1,)),)},
            "blocks of batches place no single experts",
        ),
    ],
)
def test_mlps_on_the_cpu_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        replace(MLPS, **changes)
    assert "\n" not in error.value.message


LAYERS = replace(
    PLAN,
    weights=(WeightPlacement(0, 0), WeightPlacement(1, 3, "host")),
    cpu_layers=(3,),
    quantized_layers="all",
    recomputed_tokens=0,
)


def test_layers_on_the_cpu_survive_json_and_are_streamed_for_prompts() -> None:
    assert OfflinePlan.from_json(LAYERS.to_json()) == LAYERS
    assert LAYERS.layers.ever_on_cpu == LAYERS.shape.layers_on_cpu == (3,)
    assert LAYERS.shape.over_prompts.loaded == (1, 2, 3)
    assert LAYERS.shape.in_passes.loaded == (1, 2)
    both = replace(
        LAYERS,
        weights=(WeightPlacement(0, 1, "host-mlp"), WeightPlacement(2, 3, "host")),
        cpu_mlps=(0, 1),
        cpu_layers=(2, 3),
    )
    passes = both.shape.in_passes
    assert (passes.on_cpu, passes.mlp_on_cpu) == ((2, 3), (0, 1))
    assert both.layers.of(both.batch_rows) == passes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cpu_layers": (0,)}, r"cpu_layers \[0\] are not"),
        ({"cpu_layers": (3, 2)}, "ascending"),
        ({"cpu_layers": (1,)}, "which sweeps begin with"),
        ({"cpu_mlps": (3,), "cpu_layers": ()}, "layers with home 'host-mlp'"),
        ({"quantized_layers": "streamed"}, "few bits in streamed layers and cpu_layers"),
        ({"recomputed_tokens": 32}, "recomputed_tokens and cpu_layers"),
        ({"weights": PLAN.weights}, "are not, ascending, layers with home 'host'"),
    ],
)
def test_layers_on_the_cpu_that_cannot_be_are_refused(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        replace(LAYERS, **changes)
    assert "\n" not in error.value.message


def test_a_plan_of_before_leaves_threads_to_the_engine() -> None:
    given = {name: value for name, value in PLAN.to_object().items() if name != "threads"}
    assert OfflinePlan.from_object(given).threads is None


def test_sequences_and_layers_add_up() -> None:
    assert (PLAN.batch_rows, PLAN.block_rows, PLAN.num_layers) == (6, 24, 4)
    assert (PLAN.shape.weights.layers, PLAN.shape.weights.on_disk) == ((2, 3), (3,))
    assert PLAN.accelerator.free_bytes == 0


def changed(**changes: Any) -> str:
    return json.dumps({**json.loads(PLAN.to_json()), **changes})


def budget(**changes: int) -> dict[str, int]:
    return {**json.loads(PLAN.to_json())["accelerator"], **changes}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        changed(format=FORMAT + 1),
        changed(surprise=1),
        changed(weights=None),
        changed(weights=[]),
        changed(weights=[{"first_layer": 1, "last_layer": 3}]),
        changed(weights=[{"first_layer": 0, "last_layer": 3, "home": "cpu"}]),
        changed(weights=[{"first_layer": 0, "last_layer": 3, "home": "disk-cpu"}]),
        changed(batches=0),
        changed(batches=1.5),
        changed(resident_rows=-1),
        changed(resident_rows=0, streamed_rows=0, cpu_rows=0),
        changed(streamed_rows=0),
        changed(recomputed_tokens=33),
        changed(recomputed_tokens=176),
        changed(slot_blocks=127),
        changed(host_blocks=-1),
        changed(quantized_layers="some"),
        changed(quantized_layers="none"),
        changed(quantization="none"),
        changed(prompts_on_host=1),
        changed(threads=0),
        changed(threads=1.5),
        changed(accelerator=None),
        changed(accelerator=budget(kv_bytes=201)),
        changed(accelerator=budget(kv_bytes=-1)),
        changed(accelerator=budget(kv_bytes=0)),
        changed(accelerator=budget(slot_bytes=0)),
        changed(accelerator=budget(pinned_bytes=1001)),
        changed(host=budget(kv_bytes=0)),
    ],
)
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match="make it anew") as error:
        OfflinePlan.from_json(text)
    assert "\n" not in error.value.message


def test_each_streamed_sequence_has_a_pinned_block() -> None:
    """All but those whose prefix is made anew: a short prompt is all prefix."""
    whole = replace(PLAN, recomputed_tokens=0)
    assert replace(whole, pinned_blocks=12).pinned_host_blocks == 12
    for given in ({"pinned_blocks": 11}, {"host_blocks": 11}):
        with pytest.raises(ConfigError, match="12 sequences are streamed from 11 pinned blocks"):
            replace(whole, **given)
    assert replace(PLAN, pinned_blocks=1).pinned_host_blocks == 1
    with pytest.raises(ConfigError, match="12 sequences are streamed from 0 pinned blocks"):
        replace(PLAN, pinned_blocks=0)
    with pytest.raises(ConfigError, match="pinned_blocks 141 are not among host_blocks 140"):
        replace(PLAN, pinned_blocks=141)
