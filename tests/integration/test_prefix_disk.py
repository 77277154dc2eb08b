"""Disks for prefixes that are filled, and engines that are killed while they write."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.prefix_disk import LAYERS, SETUP, serve
from tests.integration.test_full_disk import on_small_disk
from tests.support.engines import toy_engine

from tandem.engine.building.build import build_engine_core
from tandem.engine.clients.inprocess import InProcessClient
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.request import EngineRequest, RequestOutput
from tandem.spec.sampling import SamplingParams

PROMPT = tuple(range(5, 105))


def test_a_killed_engine_leaves_whole_blocks(tmp_path: Path) -> None:
    served = 0
    for _ in range(2):  # each goes on with what the one before left
        child = subprocess.Popen(
            [sys.executable, "-m", "tests.fakes.prefix_disk", "for-ever", str(tmp_path)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert child.stdout is not None
        with child:
            for line in child.stdout:
                served = int(line)
                if served >= 12:
                    break
            child.kill()
        with toy_engine(replace(SETUP, disk=tmp_path / "kv"), LAYERS) as engine:
            cached = [serve(engine, number) for number in range(served)]
            stats = engine.stats.disk
            engine.check_idle()
        assert stats is not None
        assert stats.damaged_blocks == 0
        assert stats.read_blocks > 0
        assert sum(cached) == stats.read_blocks * SETUP.block_size


def test_a_full_disk_is_read_on(tmp_path: Path) -> None:
    probe = on_small_disk("64k", tmp_path / "probe", "true")
    if probe.returncode:
        pytest.skip(f"no tmpfs may be mounted here: {probe.stderr.strip()}")
    disk = tmp_path / "disk"
    program = (sys.executable, "-m", "tests.fakes.prefix_disk", "until-full", str(disk))
    done = on_small_disk("128k", disk, *program)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["cached"] == 24
    assert said["read_blocks"] == 6
    assert said["damaged_blocks"] == 0
    assert done.stderr.count("takes no more KV (No space left on device)") == 1


# --- the demo model, through the engine's own thread --------------------------------------------


def ask(config: EngineConfig) -> tuple[list[int], int, dict[str, Any]]:
    """An engine's tokens after the prompt, and how many of it were cached; closed when what it
    could write is written.
    """
    client = InProcessClient(lambda progress: build_engine_core(config, progress))
    outputs: list[RequestOutput] = []
    try:
        params = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)
        mailbox = client.submit(EngineRequest("r", PROMPT, params))
        while not outputs or outputs[-1].finish_reason is None:
            outputs += [event for event in mailbox.take() if isinstance(event, RequestOutput)]
        wanted = len(PROMPT) // config.block_size
        disk = dict[str, Any](stored_blocks=0)
        while disk["stored_blocks"] < wanted:  # the engine is idle, and still writes
            disk = client.request_stats().result()["disk"]
    finally:
        client.close()
    tokens = [token for output in outputs for token in output.token_ids]
    return tokens, max(output.cached_tokens for output in outputs), disk


def config_of(folder: Path, **options: object) -> EngineConfig:
    base = {"model": "demo", "accelerator": "none", "block_size": 16, "max_num_seqs": 2}
    base |= {"cpu_memory": "400MiB", "kv_disk": str(folder / "kv"), "kv_disk_size": "8MiB"}
    return EngineConfig.from_options(base | options)


def test_an_idle_engine_goes_on_writing_and_the_next_one_reads(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    tokens, cached, _ = ask(config)
    assert cached == 0
    again, cached, disk = ask(config)
    assert again == tokens
    assert cached == 96
    assert disk["read_blocks"] == 6


def test_the_folder_is_of_one_engine_and_one_layout(tmp_path: Path) -> None:
    core = build_engine_core(config_of(tmp_path))
    with pytest.raises(ConfigError, match="in use by another engine"):
        build_engine_core(config_of(tmp_path))
    core.close()
    ask(config_of(tmp_path))  # without a block in it, it is anybody's
    with pytest.raises(ConfigError, match="holds KV of another block size: 16, not 32"):
        build_engine_core(config_of(tmp_path, block_size=32))
    with pytest.raises(ConfigError, match="holds KV of another precision"):
        build_engine_core(config_of(tmp_path, kv_cache_dtype="int8"))
    with pytest.raises(ConfigError, match="holds KV of another model"):
        build_engine_core(config_of(tmp_path, load_format="dummy"))
    build_engine_core(config_of(tmp_path)).close()


def test_a_failed_start_gives_the_folder_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ConfigError("broken on purpose")

    monkeypatch.setattr("tandem.engine.building.parts.load_reported", broken)
    with pytest.raises(ConfigError, match="broken on purpose"):
        build_engine_core(config_of(tmp_path))
    monkeypatch.undo()
    build_engine_core(config_of(tmp_path)).close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kv_disk": None}, "--kv-disk-size 8MiB has no meaning without --kv-disk"),
        ({"kv_disk_size": "1KiB"}, "does not hold one KV block"),
        ({"enable_prefix_caching": False}, "no meaning with --no-enable-prefix-caching"),
        (
            {"accelerator": "emulated", "host_prefix_share": 0.0},
            "no meaning with --host-prefix-share 0",
        ),
        (
            {"accelerator": "emulated", "host_prefix_share": 1e-6},
            "no KV block of its .* may be used for that",
        ),
        ({"accelerator": "emulated", "cpu_memory": "0"}, "--kv-disk .* needs a host KV tier"),
    ],
)
def test_what_cannot_be_is_said(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        build_engine_core(config_of(tmp_path, **options))
