import io
import json
from pathlib import Path

import pytest
from tests.unit.cli.conftest import SAID, Commands

from tandem.engine.frontend.tokenizer import Tokenizer


def test_one_prompt_is_printed_as_plain_text(commands: Commands, tokenizer: Tokenizer) -> None:
    ran = commands.run("generate", "--prompt", "Hi")
    assert (ran.status, ran.out, ran.err) == (0, SAID + "\n", "")
    (request,) = commands.core.requests
    assert request.prompt_token_ids == tokenizer.encode("Hi")
    assert (request.sampling.temperature, request.sampling.max_tokens) == (0.0, 128)
    assert commands.configs[0].model == "demo"
    assert commands.core.closed


def test_json_lists_outputs_in_the_order_of_prompts_then_samples(commands: Commands) -> None:
    args = ("--prompt-ids", "[[5,6],[7]]", "--n", "2", "--max-tokens", "3", "--json")
    ran = commands.run("generate", "demo", *args)
    result = json.loads(ran.out)
    assert [output["prompt_token_ids"] for output in result["outputs"]] == [[5, 6]] * 2 + [[7]] * 2
    assert set(result["outputs"][0]) == {
        "prompt_token_ids",
        "token_ids",
        "text",
        "finish_reason",
    }
    assert result["outputs"][0]["finish_reason"] == "length"
    assert SAID.startswith(result["outputs"][0]["text"])
    assert result["stats"]["num_finished"] == 4


def test_several_outputs_have_headings(commands: Commands) -> None:
    ran = commands.run("generate", "--prompt", "a", "--prompt", "b", "--max-tokens", "2")
    assert ran.out.splitlines()[0] == "=== prompt 1 (length)"
    assert "=== prompt 2 (length)" in ran.out


def test_logprobs_are_in_the_json(commands: Commands) -> None:
    ran = commands.run(
        "generate", "--prompt", "a", "--max-tokens", "2", "--logprobs", "1", "--json"
    )
    (output,) = json.loads(ran.out)["outputs"]
    assert [entry["token_id"] for entry in output["logprobs"]] == output["token_ids"]
    assert [len(entry["top_logprobs"]) for entry in output["logprobs"]] == [1, 1]


def test_every_sampling_flag_reaches_the_engine(commands: Commands) -> None:
    flags = (
        "--max-tokens 9 --min-tokens 2 --temperature 0.5 --top-p 0.9 --top-k 3 --min-p 0.1 "
        "--repetition-penalty 1.1 --presence-penalty 0.2 --frequency-penalty 0.3 "
        "--stop-token-ids 4,5 --stop-token-ids 6 --ignore-eos --stop zzz"
    )
    assert commands.run("generate", "--prompt", "a", *flags.split()).status == 0
    params = commands.core.requests[0].sampling
    assert (params.max_tokens, params.min_tokens, params.temperature) == (9, 2, 0.5)
    assert (params.top_p, params.top_k, params.min_p) == (0.9, 3, 0.1)
    assert (params.repetition_penalty, params.presence_penalty) == (1.1, 0.2)
    assert (params.frequency_penalty, params.ignore_eos) == (0.3, True)
    assert params.stop_token_ids == (4, 5, 6)


def test_stop_strings(commands: Commands) -> None:
    ran = commands.run("generate", "--prompt", "a", "--stop", "fox", "--stop", "brown")
    assert ran.out == "The quick \n"


def test_a_prompt_file_is_one_prompt(
    commands: Commands, tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text("one\ntwo 🦜\n", encoding="utf-8")
    assert commands.run("generate", "--prompt-file", str(path)).status == 0
    stdin = io.TextIOWrapper(io.BytesIO(b"from a pipe"))
    monkeypatch.setattr("sys.stdin", stdin)
    assert commands.run("generate", "--prompt-file", "-").status == 0
    prompts = [request.prompt_token_ids for request in commands.core.requests]
    assert prompts == [tokenizer.encode("one\ntwo 🦜"), tokenizer.encode("from a pipe")]


def test_a_file_that_is_not_utf_8(commands: Commands, tmp_path: Path) -> None:
    path = tmp_path / "prompt.txt"
    path.write_bytes(b"caf\xe9")
    ran = commands.run("generate", "--prompt-file", str(path))
    assert (ran.status, ran.out) == (2, "")
    assert "is not UTF-8 (byte 3)" in ran.err


def test_an_argument_that_is_not_utf_8(commands: Commands) -> None:
    ran = commands.run("generate", "--prompt", b"caf\xe9".decode(errors="surrogateescape"))
    assert ran.status == 2
    assert "not valid Unicode" in ran.err


BAD = [
    ([], "give one of --prompt"),
    (["--prompt", ""], "the prompt is empty"),
    (["--prompt", "a", "--prompt-ids", "[1]"], "give one of --prompt"),
    (["--prompt-ids", "[[1,"], "not JSON"),
    (["--prompt-ids", "[]"], "not a list of token lists"),
    (["--prompt-ids", "[[1],2]"], "not a list of token lists"),
    (["--prompt-ids", "[[1.5]]"], "not a list of token lists"),
    (["--prompt-ids", "[[]]"], "the prompt is empty"),
    (["--prompt-ids", "[[4096]]"], "outside the model's vocabulary"),
    (["--prompt-ids", json.dumps([[5] * 600])], "600 tokens"),
    (["--prompt-file", "/nowhere/x"], "cannot read --prompt-file /nowhere/x: No such file"),
    (["--prompt", "a", "--temperature", "-1"], "temperature must be between 0 and 100, not -1.0"),
    (["--prompt", "a", "--top-p", "nan"], "top_p must be"),
    (["--prompt", "a", "--max-tokens", "x"], "Invalid value for '--max-tokens'"),
    (["--prompt", "a", "--stop-token-ids", "x"], "--stop-token-ids must be numbers"),
    (["--prompt", "a", "--n", "0"], "n must be between 1"),
    (["--prompt", "a", "--logprobs", "1"], "add --json"),
    (["--prompt", "a", "--wat"], "No such option"),
    (["--prompt", "a", "--tensor-parallel-size", "2"], "tensor_parallel_size 2 is not supported"),
    (["--prompt", "a", "--kv-placement", "moon"], "unknown kv_placement 'moon'"),
    (["--prompt", "a", "--block-size", "48"], "block_size must be 16, 32, 64, 128 or 256"),
    (["/nowhere/model", "--prompt", "a"], "no directory '/nowhere/model'"),
    (["no-such/model", "--prompt", "a"], "fetch it with: hf download no-such/model"),
]


@pytest.mark.parametrize(("args", "message"), BAD, ids=str)
def test_bad_input_is_one_line_and_status_2(
    commands: Commands, args: list[str], message: str
) -> None:
    ran = commands.run("generate", *args)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("tandem: error: ")
    assert ran.err.count("\n") == 1
    assert message in ran.err
