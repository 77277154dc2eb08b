import io
import json
import shutil
from pathlib import Path

import pytest
from tests.unit.cli.conftest import SAID, Commands

import tandem
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
    (["--prompt", "a", "--stop", ""], "stop must be non-empty strings"),
    (["--prompt", "a", "--stop-token-ids", "4096"], "outside the model's vocabulary"),
    (["--prompt", "word " * 20_000], "bytes"),
    (["--prompt", "a", "--logprobs", "1"], "add --json"),
    (["--prompt", "a", "--wat"], "No such option"),
    (["--prompt", "a", "--tensor-parallel-size", "2"], "--tensor-parallel-size 2 is not supported"),
    (["--prompt", "a", "--kv-placement", "moon"], "unknown --kv-placement 'moon'"),
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


# What needs the loaded engine: the context that memory allows.
NEEDS_THE_ENGINE = "600 tokens"


@pytest.mark.parametrize(
    "args", [args for args, message in BAD if message != NEEDS_THE_ENGINE], ids=str
)
def test_mistakes_are_found_before_the_weights_are_read(
    commands: Commands, args: list[str]
) -> None:
    commands.run("generate", *args)
    assert commands.configs == []


def test_the_default_length_is_cut_to_what_the_context_leaves(commands: Commands) -> None:
    prompts = json.dumps([[5] * 500, [6]])
    assert commands.run("generate", "--prompt-ids", prompts, "--json").status == 0
    assert [request.sampling.max_tokens for request in commands.core.requests] == [12, 128]


def test_a_stop_string_in_the_environment_may_hold_blanks(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TANDEM_STOP", "brown fox")
    assert commands.run("generate", "--prompt", "a").out == "The quick \n"
    monkeypatch.setenv("TANDEM_STOP", '["lazy dog", "jumps over"]')
    assert commands.run("generate", "--prompt", "a").out == "The quick brown fox \n"
    monkeypatch.setenv("TANDEM_STOP", "[INST]")
    assert commands.run("generate", "--prompt", "a").out == SAID + "\n"
    monkeypatch.setenv("TANDEM_STOP_TOKEN_IDS", "7,8")
    monkeypatch.setenv("TANDEM_STOP", "brown fox")
    assert commands.run("generate", "--prompt", "a", "--stop", "dog").out != "The quick \n"
    assert commands.core.requests[-1].sampling.stop_token_ids == (7, 8)


@pytest.mark.parametrize(
    ("flags", "notes"),
    [
        ("--n 3", ["all 3 samples are the same at temperature 0"]),
        ("--top-p 0.9 --top-k 5", ["--top-p changes nothing", "--top-k changes nothing"]),
        ("--min-p 0.1", ["--min-p changes nothing"]),
        ("--n 3 --top-p 0.9 --temperature 0.5", []),
        ("--top-k -1", []),
    ],
)
def test_flags_without_an_effect_are_mentioned(
    commands: Commands, flags: str, notes: list[str]
) -> None:
    ran = commands.run("generate", "--prompt", "a", *flags.split())
    assert ran.status == 0
    lines = ran.err.splitlines()
    assert len(lines) == len(notes)
    for line, note in zip(lines, notes, strict=True):
        assert line.startswith(f"tandem: note: {note}")


@pytest.fixture
def without_tokenizer(tmp_path: Path) -> str:
    demo = Path(tandem.__file__).parent / "assets" / "demo-model"
    shutil.copy(demo / "config.json", tmp_path)
    return str(tmp_path)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--prompt-ids", "[5]"], "there is no text to print; add --json"),
        (["--prompt-ids", "[5]", "--json", "--stop", "x"], "no stop string can be found"),
        (["--prompt", "a", "--json"], "give prompts as token ids"),
    ],
)
def test_text_without_a_tokenizer_is_refused_before_the_load(
    commands: Commands, without_tokenizer: str, args: list[str], message: str
) -> None:
    ran = commands.run("generate", without_tokenizer, *args)
    assert (ran.status, ran.err.count("\n"), commands.configs) == (2, 1, [])
    assert message in ran.err


def test_token_ids_without_a_tokenizer(commands: Commands, without_tokenizer: str) -> None:
    args = ("--prompt-ids", "[5]", "--json", "--max-tokens", "2")
    (output,) = json.loads(commands.run("generate", without_tokenizer, *args).out)["outputs"]
    assert (len(output["token_ids"]), output["text"]) == (2, "")


@pytest.mark.parametrize("extra", [[], ["--json"], ["--n", "2"]], ids=str)
def test_a_full_disk_is_one_line(
    commands: Commands, extra: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        monkeypatch.setattr("sys.stdout", full)
        args = ("--prompt", "a", "--temperature", "0.5", *extra)
        ran = commands.run("generate", *args)
        assert ran.status == 2
        assert ran.err.startswith("tandem: error: cannot write the output: No space left on device")
        assert ran.err.count("\n") == 1
    assert commands.core.closed


@pytest.mark.parametrize(
    ("flags", "at_once"),
    [
        ([], 2),
        (["--n", "3"], 6),
        (["--n", "40"], 64),
        (["--n", "40", "--max-num-seqs", "70"], 70),
        (["--max-num-seqs", "1"], 1),
    ],
)
def test_as_many_sequences_as_are_asked_for_are_planned_for(
    commands: Commands, flags: list[str], at_once: int
) -> None:
    ran = commands.run("generate", "--prompt", "a", "--prompt", "b", "--max-tokens", "1", *flags)
    assert ran.status == 0
    assert commands.configs[0].max_num_seqs == at_once
