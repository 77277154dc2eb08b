"""A `config.json` with numbers of no model is refused at once by every command, in one line."""

from pathlib import Path

import pytest
from tests.unit.models.configs import LLAMA, MIXTRAL_8X7B, write

from tandem.cli.main import main

COMMANDS = ("generate", "chat", "serve", "batch", "plan", "simulate")
ABSURD = {
    "layers": (
        {**LLAMA, "num_hidden_layers": 10**9},
        "'num_hidden_layers' must be at most 1000, not 1000000000",
    ),
    "experts": (
        {**MIXTRAL_8X7B, "num_local_experts": 10**9},
        "'num_local_experts' must be at most 10000, not 1000000000",
    ),
    "positions": ({**LLAMA, "max_position_embeddings": 10**400}, "not a number of 401 digits"),
}
LARGE = {
    "vocabulary": {**LLAMA, "vocab_size": 10**15},
    "width": {**LLAMA, "hidden_size": 1 << 40},
}
"""Numbers that a model could have, which fits no machine."""


@pytest.mark.parametrize("what", ABSURD)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.timeout(30)
def test_numbers_of_no_model_are_refused_in_one_line(
    command: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, named = ABSURD[what]
    flags = {
        "generate": ["--prompt", "a"],
        "batch": ["-i", str(tmp_path / "in.jsonl"), "-o", str(tmp_path / "out.jsonl")],
        "plan": ["--accelerator", "rtx4090"],
        "simulate": ["--accelerator", "rtx4090"],
    }
    (tmp_path / "in.jsonl").write_text("{}\n")
    refuses(command, str(write(tmp_path, config)), flags.get(command, []), named, capsys)


@pytest.mark.parametrize("what", LARGE)
@pytest.mark.timeout(30)
def test_a_model_that_fits_no_machine_is_refused_in_one_line(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = str(write(tmp_path, LARGE[what]))
    refuses("plan", model, ["--accelerator", "rtx4090"], "TiB", capsys)


def refuses(
    command: str,
    model: str,
    flags: list[str],
    named: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([command, model, *flags]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1, captured.err
    assert captured.err.startswith("tandem: error: ")
    assert named in captured.err
