import io

import pytest
from tests.unit.cli.conftest import SAID, Commands

from tandem.engine.frontend.tokenizer import Tokenizer


def type_in(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(line + "\n" for line in lines)))


def test_one_message(commands: Commands, tokenizer: Tokenizer) -> None:
    ran = commands.run("chat", "--message", "Hi", "--system", "Be brief.")
    assert (ran.status, ran.out) == (0, SAID + "\n")
    expected = tokenizer.encode_chat(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    )
    assert commands.core.requests[0].prompt_token_ids == expected


def test_a_conversation_remembers_until_reset(
    commands: Commands, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_in(monkeypatch, "One", "", "Two", "/reset", "Three", "/quit", "Four")
    ran = commands.run("chat")
    assert (ran.status, ran.out) == (0, (SAID + "\n") * 3)
    one = [{"role": "user", "content": "One"}]
    two = [*one, {"role": "assistant", "content": SAID}, {"role": "user", "content": "Two"}]
    three = [{"role": "user", "content": "Three"}]
    prompts = [request.prompt_token_ids for request in commands.core.requests]
    assert prompts == [tokenizer.encode_chat(messages) for messages in (one, two, three)]


def test_the_end_of_input_ends_the_conversation(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_in(monkeypatch, "One")
    assert commands.run("chat").status == 0


def test_too_long_a_message_is_an_error_and_forgotten(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_in(monkeypatch, "word " * 600, "Hi")
    ran = commands.run("chat")
    assert (ran.status, ran.out) == (0, SAID + "\n")
    assert ran.err.startswith("tandem: error: the prompt has ")
    assert len(commands.core.requests) == 1


def test_no_answer_to_an_impossible_message(commands: Commands) -> None:
    ran = commands.run("chat", "--message", "word " * 600)
    assert (ran.status, ran.err.count("\n")) == (2, 1)


def test_the_default_length_is_cut_to_what_the_context_leaves(
    commands: Commands, tokenizer: Tokenizer
) -> None:
    message = "word " * 400
    assert commands.run("chat", "--message", message).status == 0
    (request,) = commands.core.requests
    assert request.sampling.max_tokens == 512 - len(request.prompt_token_ids) < 128


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--stop-token-ids", "4096"], "outside the model's vocabulary"),
        (["--message", "word " * 20_000], "bytes"),
    ],
)
def test_mistakes_are_found_before_the_weights_are_read(
    commands: Commands, args: list[str], message: str
) -> None:
    ran = commands.run("chat", *args)
    assert (ran.status, commands.configs) == (2, [])
    assert message in ran.err


@pytest.mark.parametrize(("flags", "at_once"), [([], 1), (["--max-num-seqs", "3"], 3)])
def test_one_request_at_a_time_is_what_memory_is_planned_for(
    commands: Commands, flags: list[str], at_once: int
) -> None:
    assert commands.run("chat", "--message", "Hi", *flags).status == 0
    assert commands.configs[0].max_num_seqs == at_once
