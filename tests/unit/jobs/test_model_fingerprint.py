import os
import shutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from tandem.jobs.settings import ANSWER_OPTIONS
from tandem.models.model_fingerprint import fingerprint_model
from tandem.spec.config import EngineConfig
from tandem.spec.units import MIB

# Where and how fast things are computed. A new field belongs here or to ANSWER_OPTIONS.
OPTIONS_THAT_CHANGE_NO_ANSWER = {
    "accelerator",
    "gpu_memory",
    "cpu_memory",
    "gpu_margin",
    "max_num_seqs",
    "max_num_batched_tokens",
    "block_size",
    "strategy",
    "kv_placement",
    "max_host_seqs",
    "interposition_budget",
    "tpot_bound",
    "ttft_bound",
    "placement",
    "host_layers",
    "expert_hits",
    "save_expert_hits",
    "plan",  # its element types are put into their own options
    "disk_io",
    "spool_dir",
    "disk_copies",
    "pinned_memory",
    "preemption_mode",
    "enable_prefix_caching",
    "host_prefix_share",
    "kv_disk",
    "kv_disk_size",
    "calibrate",
    "max_num_queued_reqs",
    "overlap",
    "cuda_graphs",
    "link_copies",
    "link_waits",
    "attention_backend",
    "tensor_parallel_size",
    "trace",
    "trace_limit",
}


def test_every_option_is_known_to_change_answers_or_not() -> None:
    known = OPTIONS_THAT_CHANGE_NO_ANSWER | {"model", *ANSWER_OPTIONS}
    assert known == {field.name for field in fields(EngineConfig)}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    (directory / "config.json").write_text("{}")
    (directory / "README.md").write_text("hello")
    with (directory / "model.safetensors").open("wb") as file:
        file.truncate(40 * MIB)
    return directory


def edit_weights(model: Path) -> None:
    with (model / "model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"x")


CHANGES: dict[str, Callable[[Path], object]] = {
    "config": lambda model: (model / "config.json").write_text("[]"),
    "weights": edit_weights,
    "size": lambda model: os.truncate(model / "model.safetensors", 41 * MIB),
    "name": lambda model: (model / "config.json").rename(model / "other.json"),
    "template": lambda model: (model / "chat_template.jinja").write_text("x"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_another_model_is_told_apart(model: Path, change: str) -> None:
    before = fingerprint_model(model)
    CHANGES[change](model)
    assert fingerprint_model(model) != before


def test_a_copy_is_the_same_model(model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "elsewhere"
    shutil.copytree(model, copy)
    (copy / "README.md").write_text("bye")
    assert fingerprint_model(copy) == fingerprint_model(model)
