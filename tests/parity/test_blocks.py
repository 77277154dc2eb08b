"""Tokens stay those of transformers when an engine executes an offline plan."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.parity.block_models import BLOCK_MODELS, LLAMA, MIXTURE
from tests.parity.checkpoints import Checkpoints
from tests.parity.generation import PROMPTS, generate
from tests.parity.greedy import TieCount, assert_greedy_parity
from tests.parity.tiny_models import Case
from tests.support.blocks import ExecutorKind, block_engine, loaded, small_plan

from tandem.kernels import native
from tandem.plan.weights import Home, as_runs

NUM_TOKENS = 24
HOMES: tuple[Home, ...] = ("streamed", "streamed", "streamed", "streamed")
MLPS: tuple[Home, ...] = ("host-mlp", "host-mlp", "host-mlp", "host-mlp")
SOME_MLPS: tuple[Home, ...] = ("streamed", "host-mlp", "streamed", "host-mlp")
WHOLE: tuple[Home, ...] = ("host", "host", "host", "host")
DISK: Home = "disk_streamed"
FROM_DISK: dict[str, tuple[Home, ...]] = {
    "all": (DISK, DISK, DISK, DISK, DISK),
    "odd": (DISK, "streamed", "resident", DISK, DISK),
    "one": ("streamed", "resident", DISK, "streamed", "resident"),
    "beside-mlps": (DISK, DISK, "host-mlp", "host-mlp", "host-mlp"),
    "among-mlps": (DISK, "host-mlp", "host-mlp", DISK, "resident"),
    "beside-layers": (DISK, DISK, "host", "host", "host"),
    "beside-streamed": (DISK, "streamed", "streamed", DISK, "streamed"),
    "last": ("streamed", "streamed", DISK, DISK, "resident"),
}
DISK_CASES = [
    *((name, lever) for name in ("all", "odd", "one") for lever in ("mixed", "resident-kv")),
    *((name, "overlapping-in-parts") for name in ("all", "odd", "one")),
    *((name, "keys-first") for name in ("all", "odd", "one")),
    ("beside-mlps", "mixed"),
    ("beside-mlps", "last-cpu-mlps"),
    ("among-mlps", "middle-cpu-mlp"),
    ("beside-layers", "last-cpu-layers"),
    ("odd", "columns"),
    ("beside-streamed", "columns-beside-recomputed"),
    ("last", "attention-maps"),
    ("beside-mlps", "columns-of-mlps"),
    ("among-mlps", "columns"),
    ("beside-streamed", "attention-maps-between-layers"),
    ("last", "attention-maps-and-kv"),
]
LEVERS: dict[str, dict[str, Any]] = {
    "resident-weights": {"weights": (), "resident_rows": 2},
    "resident-kv": {"resident_rows": 2},
    "streamed-kv": {"streamed_rows": 2},
    "on-cpu": {"cpu_rows": 2},
    "recomputed": {"streamed_rows": 2, "recomputed_tokens": 32},
    "mixed": {
        "resident_rows": 1, "streamed_rows": 1, "cpu_rows": 1, "recomputed_tokens": 16,
        "prompts_on_host": True,
    },
    "overlapping": {
        "batches": 3, "resident_rows": 1, "streamed_rows": 1, "cpu_rows": 1, "layers_overlap": True,
    },
    "in-parts": {"batches": 3, "streamed_rows": 1, "cpu_rows": 1, "weights_in_parts": True},
    "overlapping-in-parts": {
        "batches": 3, "resident_rows": 1, "cpu_rows": 1, "layers_overlap": True,
        "weights_in_parts": True,
    },
    "keys-first": {"streamed_rows": 2, "recomputed_tokens": 32, "weights_in_parts": True},
    "keys-first-mixed": {
        "batches": 3, "resident_rows": 1, "streamed_rows": 1, "recomputed_tokens": 16,
        "prompts_on_host": True, "weights_in_parts": True,
    },
    # of 4 prompts: each by itself, two and then two in one batch, two and then two in two batches
    "by-rows": {"batches": 1, "resident_rows": 1},
    "by-rows-mixed": {
        "batches": 1, "resident_rows": 1, "streamed_rows": 1, "recomputed_tokens": 16,
    },
    "by-columns-in-turn": {"batches": 2, "cpu_rows": 1},
    "one-batch": {"batches": 1, "streamed_rows": 2, "cpu_rows": 1},
    "streamed-mlps": {"weights": MLPS, "resident_rows": 2},
    "cpu-mlps": {"weights": MLPS, "cpu_mlps": (2, 3), "resident_rows": 1, "streamed_rows": 1},
    "recomputed-beside-a-cpu-mlp": {
        "weights": SOME_MLPS, "cpu_mlps": (3,), "batches": 1, "streamed_rows": 2, "cpu_rows": 1,
        "recomputed_tokens": 16,
    },
    "recomputed-beside-cpu-mlps": {
        "weights": MLPS, "cpu_mlps": (0, 1, 2, 3), "batches": 1, "resident_rows": 1,
        "streamed_rows": 2, "recomputed_tokens": 32,
    },
    "some-cpu-mlps": {
        "weights": SOME_MLPS, "cpu_mlps": (3,), "batches": 3, "resident_rows": 1,
        "streamed_rows": 1, "cpu_rows": 1, "recomputed_tokens": 16, "prompts_on_host": True,
    },
    "all-cpu-mlps": {
        "weights": MLPS, "cpu_mlps": (0, 1, 2, 3), "batches": 3, "cpu_rows": 1, "streamed_rows": 1,
        "layers_overlap": True,
    },
    "cpu-layers": {"weights": WHOLE, "cpu_layers": (2, 3), "resident_rows": 1, "streamed_rows": 1},
    "cpu-layer": {
        "weights": WHOLE, "cpu_layers": (2,), "batches": 3, "resident_rows": 1, "streamed_rows": 1,
        "cpu_rows": 1, "prompts_on_host": True,
    },
    "all-cpu-layers": {
        "weights": WHOLE, "cpu_layers": (0, 1, 2, 3), "batches": 3, "cpu_rows": 1,
        "streamed_rows": 1, "layers_overlap": True, "weights_in_parts": True,
    },
    "cpu-layers-and-kv": {"weights": WHOLE, "cpu_layers": (3,), "cpu_rows": 2},
    "cpu-layers-and-mlps": {
        "weights": ("host-mlp", "host", "host", "host-mlp"), "cpu_mlps": (3,), "cpu_layers": (2,),
        "batches": 1, "resident_rows": 2, "cpu_rows": 1,
    },
    "columns": {"cpu_columns": 24, "resident_rows": 1, "streamed_rows": 1},
    "columns-of-mlps": {
        "weights": MLPS, "cpu_columns": 40, "batches": 3, "resident_rows": 1, "streamed_rows": 1,
        "cpu_rows": 1, "recomputed_tokens": 16, "prompts_on_host": True,
    },
    "columns-of-some-mlps": {
        "weights": SOME_MLPS, "cpu_columns": 8, "batches": 1, "streamed_rows": 1, "cpu_rows": 2,
    },
    "columns-beside-recomputed": {
        "cpu_columns": 71, "batches": 2, "streamed_rows": 2, "recomputed_tokens": 32,
    },
    "attention-maps": {
        "cpu_columns": 24, "cpu_attention_maps": True, "resident_rows": 1, "streamed_rows": 1,
    },
    "attention-maps-and-kv": {
        "cpu_columns": 8, "cpu_attention_maps": True, "batches": 1, "cpu_rows": 3,
    },
    "attention-maps-between-layers": {
        "weights": ("streamed", "resident", "streamed", "streamed"), "cpu_columns": 40,
        "cpu_attention_maps": True, "batches": 3, "resident_rows": 1, "streamed_rows": 1,
        "cpu_rows": 1, "prompts_on_host": True,
    },
}  # fmt: skip
BESIDE_DISK: dict[str, dict[str, Any]] = {
    **LEVERS,
    "last-cpu-mlps": {"cpu_mlps": (3, 4), "resident_rows": 1, "streamed_rows": 1},
    "middle-cpu-mlp": {"cpu_mlps": (2,), "batches": 3, "cpu_rows": 1, "streamed_rows": 1},
    "last-cpu-layers": {"cpu_layers": (3, 4), "resident_rows": 1, "streamed_rows": 1},
}
CASES = [
    *((case, lever, "exact") for case in BLOCK_MODELS for lever in LEVERS),
    *((MIXTURE, lever, "exact") for lever, plan in LEVERS.items() if "cpu_columns" not in plan),
    *((LLAMA, lever, "inline") for lever in ("resident-weights", "mixed", "cpu-layer")),
    *(
        (LLAMA, lever, "threaded")
        for lever in (
            "streamed-kv",
            "mixed",
            "overlapping",
            "overlapping-in-parts",
            "keys-first-mixed",
            "cpu-mlps",
            "some-cpu-mlps",
            "all-cpu-mlps",
            "cpu-layer",
            "all-cpu-layers",
            "cpu-layers-and-mlps",
            "columns",
            "columns-of-mlps",
            "attention-maps",
            "attention-maps-and-kv",
            "attention-maps-between-layers",
        )
    ),
]


@pytest.mark.parametrize(
    ("case", "lever", "kind"),
    [pytest.param(*each, id="-".join((each[0].id, *each[1:]))) for each in CASES],
)
def test_greedy_tokens_equal_transformers(
    case: Case, lever: str, kind: ExecutorKind, checkpoints: Checkpoints, ties: TieCount
) -> None:
    directory, reference = checkpoints.get(case)
    model_layers = case.config().num_hidden_layers
    levers = {**LEVERS[lever]}
    elsewhere: tuple[Home, ...] = levers.pop("weights", HOMES)
    homes: tuple[Home, ...] = (*elsewhere, *["resident"] * (model_layers - len(elsewhere)))
    plan = small_plan(homes, **levers)
    model = loaded(directory, plan)
    with block_engine(model, plan, kind, seed=len(lever)) as core:
        made = generate(core, PROMPTS, NUM_TOKENS)
    for prompt, tokens in zip(PROMPTS, made, strict=True):
        assert_greedy_parity(reference, prompt, tokens, ties)


@pytest.mark.skipif(not native.available(), reason=native.unavailable_message())
@pytest.mark.parametrize("kind", ["exact", "threaded"])
@pytest.mark.parametrize(("name", "lever"), DISK_CASES)
def test_layers_come_from_disk_in_every_pass(
    name: str,
    lever: str,
    kind: ExecutorKind,
    checkpoints: Checkpoints,
    ties: TieCount,
) -> None:
    directory, reference = checkpoints.get(LLAMA)
    homes = FROM_DISK[name]
    plan = small_plan(homes, **{**BESIDE_DISK[lever], "weights": as_runs(homes)})
    model = loaded(directory, plan)
    disk = model.weights.disk
    assert disk is not None
    assert disk.reader is not None
    with block_engine(model, plan, kind, seed=3) as core:
        for num_tokens in (NUM_TOKENS, 8):  # slots are left as the next program expects them
            before = sum(disk.reader.bytes_read)
            made = generate(core, PROMPTS, num_tokens)
            for prompt, tokens in zip(PROMPTS, made, strict=True):
                assert_greedy_parity(reference, prompt, tokens, ties)
            assert sum(disk.reader.bytes_read) - before >= (num_tokens - 1) * disk.disk_bytes


@pytest.mark.skipif(not native.available(), reason=native.unavailable_message())
def test_layers_of_blocks_come_from_several_disks(
    checkpoints: Checkpoints, ties: TieCount, tmp_path: Path
) -> None:
    directory, reference = checkpoints.get(LLAMA)
    copy = Path(shutil.copytree(directory, tmp_path / "copy"))
    plan = small_plan(FROM_DISK["beside-mlps"], **BESIDE_DISK["last-cpu-mlps"])
    model = loaded(directory, plan, copy)
    assert model.weights.disk is not None
    reader = model.weights.disk.reader
    assert reader is not None
    with block_engine(model, plan, "threaded") as core:
        for prompt, tokens in zip(PROMPTS, generate(core, PROMPTS, NUM_TOKENS), strict=True):
            assert_greedy_parity(reference, prompt, tokens, ties)
        assert len(reader.bytes_read) == 2
        assert min(reader.bytes_read) > 0


def test_prefixes_are_remade_in_parts(
    checkpoints: Checkpoints, ties: TieCount, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch's prefixes have more tokens than are made at once; parts are no whole blocks."""
    for module in ("block_ops", "passing_context", "op_memory"):
        monkeypatch.setattr(f"tandem.runtime.{module}.MADE_AT_ONCE", 24)
    test_greedy_tokens_equal_transformers(LLAMA, "recomputed", "exact", checkpoints, ties)
