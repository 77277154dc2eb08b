"""64 greedy tokens equal those of transformers when prompts begin with KV that another engine left
on a disk.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.parity.generation import PROMPTS, generate
from tests.parity.greedy import Reference, TieCount, assert_greedy_parity
from tests.parity.tiny_models import CASES, Case, build
from tests.support.engines import model_engine
from tests.support.setups import Setup

from tandem.kernels.open_pool import open_pool
from tandem.memory.prefix_cache import DiskStats
from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.spec.dtype import DType
from tandem.spec.kv_type import CodeType, KVType, NarrowFloat

_SCARCE = 11
ALONE = Setup(device_blocks=32, executor="host")
BESIDE = Setup(
    device_blocks=_SCARCE, host_blocks=24, host_prefix_share=1.0, executor="exact", executor_seed=6
)
SETUPS = {
    "alone": ALONE,
    "alone-scarce": replace(ALONE, device_blocks=_SCARCE, max_num_seqs=1),
    "alone-chunked": replace(ALONE, max_num_batched_tokens=20),
    "exact": BESIDE,
    "exact-plain-loop": replace(BESIDE, overlap=False, executor_seed=3),
    "threaded-ride-along": replace(
        BESIDE, strategy="ride-along", kv_placement="host", executor="threaded", host_blocks=32
    ),
}


# windows in some layers and two rotations; positions that are learnt; experts
OTHERS = [case for case in CASES if case.id in ("gemma3-window", "opt-tied", "mixtral-window")]


def run(model: Model, setup: Setup) -> tuple[list[list[int]], DiskStats]:
    """Tokens of the prompts, and what the disk did; all is written at the end."""
    with model_engine(model, setup) as engine:
        made = generate(engine.core, PROMPTS)
        engine.settle_disk()
        engine.check_idle()
        assert engine.stats.disk is not None
        return made, engine.stats.disk


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> tuple[Reference, Model]:
    return implementations(CASES[0], tmp_path_factory.mktemp("llama"))


def implementations(case: Case, directory: Path) -> tuple[Reference, Model]:
    return Reference(build(case, directory)), load_model(directory, pool=open_pool())


@pytest.mark.parametrize("name", SETUPS)
def test_tokens_equal_transformers_in_every_form(
    name: str, llama: tuple[Reference, Model], tmp_path: Path, ties: TieCount
) -> None:
    reference, model = llama
    setup = replace(SETUPS[name], disk=tmp_path / "kv")
    run(model, setup)
    made, disk = run(model, setup)
    assert disk.read_blocks > 0
    assert disk.damaged_blocks == 0
    for prompt, tokens in zip(PROMPTS, made, strict=True):
        assert_greedy_parity(reference, prompt, tokens, ties)


@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case.id)
def test_tokens_equal_transformers_on_other_architectures(
    case: Case, tmp_path: Path, ties: TieCount
) -> None:
    reference, model = implementations(case, tmp_path / "model")
    setup = replace(ALONE, disk=tmp_path / "kv")
    run(model, setup)
    made, disk = run(model, setup)
    assert disk.read_blocks > 0
    for prompt, tokens in zip(PROMPTS, made, strict=True):
        assert_greedy_parity(reference, prompt, tokens, ties)


@pytest.mark.parametrize(
    "kv", [DType.BFLOAT16, NarrowFloat.FP8, CodeType.INT8, CodeType.INT4], ids=str
)
def test_pages_of_any_type_come_back_as_they_were(
    kv: KVType, llama: tuple[Reference, Model], tmp_path: Path
) -> None:
    _, model = llama
    setup = replace(ALONE, kv=kv, disk=tmp_path / "kv", max_num_seqs=1)
    first, _ = run(model, setup)
    again, disk = run(model, setup)
    assert disk.read_blocks > 0
    assert again == first
