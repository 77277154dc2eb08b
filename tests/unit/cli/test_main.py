import ast
import json
import os
import re
import subprocess
import sys

import pytest
from tests.unit.cli.conftest import Commands

import tandem
from tandem.cli.engine_flags import ENGINE_FLAGS
from tandem.cli.sampling_flags import SAMPLING_FLAGS
from tandem.spec.config import EngineConfig
from tandem.spec.sampling import SamplingParams

COMMANDS = ["generate", "chat", "serve", "batch", "plan", "bench", "collect-env"]


@pytest.mark.parametrize("args", [[], ["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_is_shown(commands: Commands, args: list[str]) -> None:
    ran = commands.run(*args)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.startswith("Usage: tandem")


@pytest.mark.parametrize("args", [["--help"], ["bench", "--help"]])
def test_every_command_is_described_in_whole(commands: Commands, args: list[str]) -> None:
    listed = commands.run(*args).out.partition("Commands:\n")[2].splitlines()
    assert len(listed) > 9
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []


def test_version(commands: Commands) -> None:
    assert commands.run("--version").out == f"tandem {tandem.__version__}\n"


@pytest.mark.parametrize("command", ["generate", "chat", "serve", "batch"])
def test_every_engine_option_is_a_flag_with_a_twin(commands: Commands, command: str) -> None:
    text = re.sub(r"\s+", " ", commands.run(command, "--help").out)
    for name in EngineConfig.__dataclass_fields__:
        twin = f"TANDEM_{name.upper()}"
        assert twin in text.replace(" ", ""), twin
    for flag in ENGINE_FLAGS:
        assert f"--{flag.name.replace('_', '-')}" in text


def test_flags_cover_their_dataclasses() -> None:
    assert {"model", *(flag.name for flag in ENGINE_FLAGS)} == set(
        EngineConfig.__dataclass_fields__
    )
    elsewhere = {"seed", "logprobs", "logit_bias"}
    sampling = {flag.name for flag in SAMPLING_FLAGS}
    assert sampling | elsewhere == set(SamplingParams.__dataclass_fields__)
    defaults = EngineConfig("demo")
    assert all(flag.default == getattr(defaults, flag.name) for flag in ENGINE_FLAGS)


def test_flags_and_twins_reach_the_configuration(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TANDEM_MAX_NUM_SEQS", "7")
    monkeypatch.setenv("TANDEM_ENABLE_PREFIX_CACHING", "0")
    monkeypatch.setenv("TANDEM_GPU_MEMORY", "3GiB")
    flags = "--gpu-memory 1GiB --no-overlap --max-model-len 99 --seed 3 --kv-placement split"
    assert commands.run("generate", "--prompt", "a", *flags.split()).status == 0
    assert commands.configs == [
        EngineConfig(
            "demo",
            gpu_memory="1GiB",
            overlap=False,
            max_model_len=99,
            seed=3,
            kv_placement="split",
            max_num_seqs=7,
            enable_prefix_caching=False,
        )
    ]


def test_an_unknown_command(commands: Commands) -> None:
    ran = commands.run("fly")
    assert (ran.status, ran.err) == (2, "tandem: error: No such command 'fly'.\n")


@pytest.mark.parametrize("args", [["--help"], ["serve", "--help"], ["batch", "--help"]])
def test_help_imports_nothing_heavy(args: list[str]) -> None:
    """And little in all: it was 293 modules when the bound was set, typer's own included."""
    program = (
        f"import sys; from tandem.cli.main import main; status = main({args});"
        "heavy = {'torch', 'transformers', 'fastapi', 'numpy', 'tokenizers', 'asyncio', 'sqlite3',"
        "'rich', 'tandem.api', 'tandem.jobs', 'tandem.engine'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else status or len(sys.modules) > 320)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("Usage: tandem")


@pytest.mark.parametrize("name", ["plan", "serve", "bench", "collect-env"])
def test_a_command_imports_no_other(name: str) -> None:
    program = (
        f"import sys; from tandem.cli.main import main; main([{name!r}, '--help']);"
        "print([name for name in sys.modules if name.startswith('tandem.cli.')], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30
    )
    imported = {
        module.rpartition(".")[2].replace("_", "-") for module in ast.literal_eval(done.stderr)
    }
    assert imported & set(COMMANDS) == {name}


def test_collect_env(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANDEM_API_KEY", "hush")
    monkeypatch.setenv("TANDEM_DTYPE", "float32")
    facts = json.loads(commands.run("collect-env", "--json").out)
    assert facts["tandem"] == tandem.__version__
    assert facts["$TANDEM_DTYPE"] == "float32"
    assert "hush" not in str(facts)
    assert re.match(
        "can be used, by kvikio|cannot be used: .*(kvikio|cuFile)", facts["GPUDirect Storage"]
    )
    text = commands.run("collect-env").out
    assert all(name in text for name in facts)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--port", "70000"], "port must be between 0 and 65535"),
        (["--max-body-size", "big"], "'big' is not a size"),
        (["--max-body-size", "0"], "'0' lets nothing through (--max-body-size)"),
        (["--served-model-name", ""], "a served model name is empty"),
        (["--log-level", "loud"], "unknown log_level 'loud'"),
        (["--allowed-origins", "localhost:3000"], "'localhost:3000' is no origin"),
        (["--allowed-origins", "http://localhost/"], "without a path"),
        (["--allowed-origins", "null"], "'null' is no origin"),
        (["--api-key", ""], "an API key is empty"),
        (["--host", "256.1.1.1", "--port", "0"], "cannot listen on 256.1.1.1:0"),
    ],
)
def test_bad_server_settings(commands: Commands, args: list[str], message: str) -> None:
    ran = commands.run("serve", *args)
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert message in ran.err


@pytest.mark.parametrize("flag", ["--gpu-memory", "--cpu-memory", "--gpu-margin"])
@pytest.mark.parametrize("size", ["-1GiB", "5 parsecs", ""])
def test_a_size_that_is_none_is_refused_also_where_it_has_no_effect(
    commands: Commands, flag: str, size: str
) -> None:
    ran = commands.run("generate", "--prompt", "a", "--accelerator", "none", f"{flag}={size}")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    fault = "is below 0" if size.startswith("-") else "is not a size"
    assert f"'{size}' {fault} ({flag})" in ran.err
    assert not commands.configs


def test_a_full_disk_is_one_line() -> None:
    """Also at the interpreter's end, which writes what is left."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = subprocess.run(
            [sys.executable, "-m", "tandem", "--version"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
        )
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "No space left on device" in result.stderr


def test_a_repeatable_flags_twin_is_one_value_or_a_json_list(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TANDEM_API_KEY", '["a key", ""]')
    ran = commands.run("serve", "--port", "0")
    assert (ran.status, "an API key is empty" in ran.err) == (2, True)
