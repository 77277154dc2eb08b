"""Blocks of batches on a CUDA device give the emulator's tokens, wherever weights and KV lie."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tandem.compose import build_engine
from tandem.devices.cuda import gpu_direct
from tandem.engine.clients.driver import Core
from tandem.engine.sizing.plan_options import engine_config
from tandem.models.config import read_model_spec
from tandem.plan.offline import OfflinePlan, TierBudget
from tandem.plan.plan_file import PlanFile, PlannedModel
from tandem.plan.weights import Home, as_runs
from tandem.spec.errors import ConfigError
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

_MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 512,
    "hidden_size": 128,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 256,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "torch_dtype": "float32",
    "tie_word_embeddings": False,
}
_STREAMED: tuple[Home, ...] = ("streamed", "streamed", "resident") * 2
_AMPLE = TierBudget(1 << 30, 1 << 20, 1 << 20, 1 << 20, 1 << 20)
_ROW_BLOCKS, _BLOCK, _LONGEST = 10, 16, 150
_NEW_TOKENS = 12


def _plan(
    homes: tuple[Home, ...], resident: int, streamed: int, cpu: int, **more: Any
) -> OfflinePlan:
    """Two batches, with so many sequences of each whose KV lies there."""
    made = more.get("recomputed_tokens", 0) // _BLOCK
    passing = streamed * (_ROW_BLOCKS - made)
    slots = max(passing, -(-_LONGEST // _BLOCK)) if streamed + cpu else 0
    return OfflinePlan(
        weights=as_runs(homes),
        batches=2,
        resident_rows=resident,
        streamed_rows=streamed,
        cpu_rows=cpu,
        kv_dtype="float32",
        host_kv_dtype="float32",
        block_size=_BLOCK,
        device_blocks=2 * resident * _ROW_BLOCKS,
        host_blocks=2 * (passing + cpu * _ROW_BLOCKS),
        slot_blocks=slots,
        max_model_len=_LONGEST,
        prefill_tokens=128,
        accelerator=_AMPLE,
        host=_AMPLE,
        **more,
    )


def _saved(folder: Path, plan: OfflinePlan) -> Path:
    path = folder / "plan.json"
    file = PlanFile(
        model_name="small",
        model=PlannedModel.of(read_model_spec(folder)),
        hardware="any machine",
        host_only=False,
        dtype="float32",
        kv_cache_dtype="float32",
        cpu_kv_dtype="auto",
        quantization="none",
        precision="float32",
        plan=plan,
    )
    path.write_text(file.to_json(), "utf-8")
    return path


def _tokens(core: Core) -> dict[str, list[int]]:
    """Of more requests than a block holds, so that others follow those that end."""
    params = SamplingParams(max_tokens=_NEW_TOKENS, temperature=0.0, ignore_eos=True)
    tokens: dict[str, list[int]] = {}
    try:
        for i in range(9):
            prompt = tuple((7 * i + 3 * j) % 500 + 5 for j in range(9 + 14 * i))
            tokens[str(i)] = []
            core.add_request(EngineRequest(str(i), prompt, params))
        while core.has_work():
            for output in core.step():
                tokens[output.request_id] += output.token_ids
    finally:
        core.close()
    return tokens


def _compare(
    plan: OfflinePlan, look: Callable[[Core], None] | None = None, disk_io: str = "direct"
) -> None:
    """Run on the host, on the exact emulator and on CUDA; the tokens must be the same.

    Args:
        look: at the engine on CUDA, before it has worked.
        disk_io: how that reads layers on disk.
    """
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        (folder / "config.json").write_text(json.dumps(_MODEL))
        plain = {"model": directory, "load_format": "dummy", "dtype": "float32"}
        expected = _tokens(build_engine(engine_config(plain | {"accelerator": "none"})))
        assert all(len(ids) == _NEW_TOKENS for ids in expected.values())
        planned = {
            "model": directory,
            "load_format": "dummy",
            "plan": str(_saved(folder, plan)),
            "gpu_memory": "256MiB",
            "cpu_memory": "256MiB",
            "spool_dir": directory,
        }
        emulated = engine_config(planned | {"accelerator": "emulated:exact,seed=5"})
        assert _tokens(build_engine(emulated)) == expected
        on_cuda = planned | {"accelerator": "cuda", "disk_io": disk_io}
        core = build_engine(engine_config(on_cuda))
        if look is not None:
            look(core)
        assert _tokens(core) == expected


def test_streamed_weights_match_emulator() -> None:
    _compare(_plan(_STREAMED, 2, 0, 0))


def test_streamed_weights_in_parts_match_emulator() -> None:
    _compare(_plan(_STREAMED, 1, 1, 0, weights_in_parts=True))


def test_streamed_kv_matches_emulator() -> None:
    def look(core: Core) -> None:
        blocks, block_bytes = 2 * 2 * _ROW_BLOCKS, 6 * 2 * _BLOCK * 2 * 32 * 4
        assert core.stats().pinned_bytes == blocks * block_bytes  # the host's pool, to the byte

    _compare(_plan(("resident",) * 6, 0, 2, 0), look)


def test_recomputed_prefixes_match_emulator() -> None:
    _compare(_plan(_STREAMED, 1, 1, 1, recomputed_tokens=32))


def test_halves_shared_by_link_and_cpu_match_emulator() -> None:
    """Park and Egger's: of each half the link brings some KV, while the CPU attends to the rest;
    layers overlap, and come in parts."""
    plan = _plan(("streamed",) * 6, 0, 1, 2, layers_overlap=True, weights_in_parts=True)
    _compare(plan)


def test_mlps_on_the_cpu_match_emulator() -> None:
    homes: tuple[Home, ...] = ("host-mlp", "host-mlp", "resident") * 2
    _compare(_plan(homes, 1, 1, 1, cpu_mlps=(3, 4)))


def test_columns_on_the_cpu_match_emulator() -> None:
    """Prompts are read again behind passes, which leave the columns out."""
    mlps: tuple[Home, ...] = ("host-mlp",) * 3 + ("resident",) + ("host-mlp",) * 2
    for homes in (_STREAMED, mlps):
        _compare(_plan(homes, 1, 1, 1, cpu_columns=32))


_FROM_DISK: tuple[Home, ...] = ("disk_streamed", "streamed", "resident") * 2


def _memory(core: Core) -> set[tuple[str, str]]:
    """What is where."""
    return {(row.location, row.label) for row in core.stats().memory}


def test_layers_from_disk_through_the_host_match_emulator() -> None:
    def look(core: Core) -> None:
        notes = " ".join(core.stats().notes)
        assert "read into host memory first (--disk-io direct); GPUDirect Storage" in notes
        assert ("host", "weight slots") in _memory(core)

    _compare(_plan(_FROM_DISK, 2, 0, 0), look)


def test_layers_from_disk_by_gpudirect_match_emulator() -> None:
    """Where there is none, it is refused, with the reason."""

    def look(core: Core) -> None:
        notes = " ".join(core.stats().notes)
        assert "read straight into the GPU's memory (--disk-io gpudirect: kvikio" in notes
        assert ("host", "weight slots") not in _memory(core)

    reason, told = gpu_direct.reason_against(), None
    try:
        _compare(_plan(_FROM_DISK, 2, 0, 0), look, "gpudirect")
    except ConfigError as error:
        told = str(error)
        print(told)
    if reason is not None:
        assert told == f"--disk-io gpudirect: {reason}, or use --disk-io direct"
    elif told is not None:  # not for the spool's file system
        assert "straight into the GPU's memory" in told


def test_layers_on_the_cpu_with_its_kv_match_emulator() -> None:
    homes: tuple[Home, ...] = ("host", "host", "resident") * 2

    def look(core: Core) -> None:
        assert "in passes the CPU computes 2 layers" in core.stats().notes[0]

    _compare(_plan(homes, 0, 0, 2, cpu_layers=(3, 4)), look)
