"""Tokens stay those of transformers when layers come from disk each time, to the accelerator or for
the CPU beside it.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.parity.checkpoints import Checkpoints, Homes
from tests.parity.generation import NUM_TOKENS, PROMPTS, generate
from tests.parity.greedy import Reference, TieCount, assert_greedy_parity
from tests.parity.modes import MODE_OF
from tests.parity.quantized_weights import precision, with_rounded_weights
from tests.parity.tiny_models import Case, moe, rotary
from tests.support.engines import model_engine
from tests.support.setups import Setup
from transformers import LlamaConfig, MixtralConfig

from tandem.kernels import native
from tandem.kernels.open_pool import open_pool
from tandem.models.disk_weights import DiskPlacement
from tandem.models.load import load_model
from tandem.plan.sweep_layers import CpuRule
from tandem.plan.weights import Home
from tandem.spec.weight_format import WeightFormat

if not native.available():
    pytest.skip(native.unavailable_message(), allow_module_level=True)

DISK: Home = "disk_streamed"
READ: Home = "disk-cpu"
DENSE = Case("llama-5-layers", rotary(LlamaConfig, 32, 4, 2, 8, num_hidden_layers=5))
CASES = {
    "dense": DENSE,
    "qwen3moe": Case(
        "qwen3moe-5-layers", moe(32, 4, 2, 8, num_hidden_layers=5, mlp_only_layers=[0])
    ),
    "mixtral": Case("mixtral-4-layers", rotary(MixtralConfig, 32, 4, 2, 8, num_hidden_layers=4)),
    "quantized": Case(
        "llama-quantized-5-layers",
        rotary(LlamaConfig, 128, 4, 2, 32, intermediate_size=256, num_hidden_layers=5),
    ),
}
PLACEMENTS: dict[str, tuple[Homes, tuple[CpuRule, ...]]] = {
    "most": (tuple((layer, DISK) for layer in (1, 2, 3, 4)), ()),
    "odd": (((0, DISK), (1, "streamed"), (2, "cpu"), (3, DISK), (4, DISK)), ()),
    "all": (tuple((layer, DISK) for layer in range(5)), ()),
    "one": (((1, "streamed"), (2, "streamed"), (3, DISK), (4, "streamed")), ()),
    "first-round": (((0, DISK), (3, DISK)), ()),  # stays on the accelerator
    "computed": (tuple((layer, READ) for layer in (0, 1, 3)), ()),
    "every-computed": (tuple((layer, READ) for layer in range(5)), ()),
    "all-kinds-of-experts": (((1, READ), (2, "cpu-mlp"), (3, "host-mlp"), (4, READ)), ()),
    "one-computed": (((1, "streamed"), (2, READ), (3, "streamed"), (4, "streamed")), ()),
    "all-kinds": (((0, READ), (1, "cpu"), (2, "cpu-mlp"), (3, "streamed"), (4, READ)), ()),
    "both": (((0, DISK), (1, READ), (2, DISK), (3, "streamed"), (4, READ)), ()),
    "both-first-computed": (((0, READ), (1, DISK), (2, DISK), (3, READ), (4, DISK)), ()),
    "both-by-step": (
        ((0, READ), (1, DISK), (2, "streamed"), (3, "host"), (4, "streamed")),
        (CpuRule(1, (3,)),),
    ),
    "both-of-experts": (((1, DISK), (2, READ), (3, "host-mlp"), (4, DISK)), ()),
    "by-step": (((0, DISK), (1, DISK), (2, "host"), (3, "host")), (CpuRule(1, (2,)),)),
}
RUNS = (
    ("dense", "most", ("in-torch", "batched", "exact-split", "exact-plain-loop", "threaded-split")),
    ("dense", "odd", ("chunked", "exact-swapped", "exact-cohorts", "threaded-cohorts")),
    ("dense", "one", ("exact-device", "threaded-split")),
    ("dense", "all", ("exact-split", "threaded-cohorts")),
    ("dense", "first-round", ("batched", "exact-split")),
    ("dense", "computed", ("in-torch", "batched", "exact-split", "threaded-cohorts")),
    ("dense", "every-computed", ("exact-device", "threaded-split")),
    ("dense", "one-computed", ("exact-cohorts", "threaded-split")),
    ("dense", "all-kinds", ("chunked", "exact-swapped", "exact-plain-loop")),
    ("qwen3moe", "all-kinds-of-experts", ("in-torch", "exact-split", "threaded-split")),
    ("dense", "both", ("in-torch", "batched", "exact-split", "threaded-cohorts")),
    ("dense", "both-first-computed", ("exact-swapped", "threaded-split")),
    ("dense", "both-by-step", ("exact-device", "threaded-split")),
    ("qwen3moe", "both-of-experts", ("exact-split", "threaded-split")),
    ("dense", "by-step", ("exact-device", "cohorts-split", "threaded-split")),
    ("qwen3moe", "most", ("in-torch", "exact-split", "threaded-cohorts")),
    ("mixtral", "by-step", ("batched", "exact-split")),
)


@pytest.mark.parametrize(
    ("case", "placement", "name"),
    [pytest.param(c, p, m, id=f"{c}-{p}-{m}") for c, p, modes in RUNS for m in modes],
)
def test_greedy_tokens_equal_transformers(
    case: str, placement: str, name: str, checkpoints: Checkpoints, ties: TieCount
) -> None:
    directory, reference = checkpoints.get(CASES[case])
    homes, rules = PLACEMENTS[placement]
    mode = MODE_OF[name]
    setup: Setup = replace(mode.setup, homes=homes, cpu_rules=rules)
    on_disk = setup.layers.usual.on_disk
    model = load_model(
        directory,
        pool=open_pool() if mode.compiled else None,
        layers=setup.layers,
        disk=DiskPlacement(on_disk, "direct", (directory / "spool",)),
    )
    disk = model.weights.disk
    assert disk is not None
    assert disk.reader is not None
    assert not list(directory.glob("spool"))  # read as they are
    with model_engine(model, setup) as engine:
        # slots are left as the next sweep expects them, also by the last one before a pause
        for num_tokens in (NUM_TOKENS, 8):
            made = generate(engine.core, PROMPTS, num_tokens)
            for prompt, tokens in zip(PROMPTS, made, strict=True):
                assert_greedy_parity(reference, prompt, tokens, ties)
        engine.check_idle()
        if placement != "first-round":  # nothing is kept but in the slots
            assert sum(disk.reader.bytes_read) >= engine.stats.num_steps * disk.disk_bytes
        if name == "exact-cohorts":  # which joins fail is drawn, and drawn anew by other programs
            assert engine.stats.cohort_joins > 0
        else:
            assert mode.happened(engine.stats)
    model.weights.close()


@pytest.mark.parametrize(
    ("format", "name", "placement"),
    [
        (WeightFormat(8, 128), "threaded-split", "most"),
        (WeightFormat(4, 32), "exact-split", "most"),
        (WeightFormat(4, 32), "exact-split", "computed"),
        (WeightFormat(4, 32), "threaded-split", "both"),
    ],
    ids=str,
)
def test_layers_in_few_bits_come_from_a_spool(
    format: WeightFormat, name: str, placement: str, ties: TieCount, tmp_path: Path
) -> None:
    reference = Reference(with_rounded_weights(tmp_path, format, CASES["quantized"]))
    homes, _ = PLACEMENTS[placement]
    mode = MODE_OF[name]
    setup: Setup = replace(mode.setup, homes=homes)
    model = load_model(
        tmp_path,
        precision(tmp_path, format),
        pool=open_pool(),
        layers=setup.layers,
        disk=DiskPlacement(setup.layers.usual.on_disk, "direct", (tmp_path / "spool",)),
    )
    with model_engine(model, setup) as engine:
        for prompt, tokens in zip(PROMPTS, generate(engine.core, PROMPTS), strict=True):
            assert_greedy_parity(reference, prompt, tokens, ties)
        engine.check_idle()
    model.weights.close()
    assert not list((tmp_path / "spool").iterdir())  # the file has no name
