"""What the Python API takes, over an engine without a model."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fakes.core import VOCAB_SIZE, FakeCore

import tandem
from tandem.compose import Service
from tandem.engine.clients.inprocess import InProcessClient
from tandem.engine.frontend.frontend import Frontend
from tandem.engine.frontend.tokenizer_files import load_tokenizer
from tandem.spec.errors import ConfigError, RequestError

MAX_MODEL_LEN = 64


def test_the_public_api_is_listed_before_it_is_imported() -> None:
    listed = subprocess.run(
        [sys.executable, "-c", "import tandem; print(*dir(tandem))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert set(tandem.__all__) <= set(listed)


def test_mistakes_are_caught_by_a_public_name(llm: tandem.LLM) -> None:
    for mistake in (lambda: llm.generate(""), lambda: tandem.LLM("demo", gpu_memory="lots")):
        with pytest.raises(tandem.TandemError):
            mistake()


@pytest.fixture
def llm() -> Iterator[tandem.LLM]:
    tokenizer = load_tokenizer(Path(tandem.__file__).parent / "assets" / "demo-model")
    client = InProcessClient(lambda _: FakeCore(MAX_MODEL_LEN))
    frontend = Frontend(client, tokenizer, VOCAB_SIZE, MAX_MODEL_LEN)
    with tandem.LLM.over(Service(frontend, "fake")) as made:
        yield made


@pytest.mark.parametrize(
    ("prompts", "token_ids"),
    [
        ([5, 6], [(5, 6)]),
        (np.array([5, 6]), [(5, 6)]),
        ([np.array([5, 6]), [7]], [(5, 6), (7,)]),
        (np.array([[5, 6], [7, 8]]), [(5, 6), (7, 8)]),
        ((5, 6), [(5, 6)]),
        (([5], (6,)), [(5,), (6,)]),
    ],
    ids=str,
)
def test_token_ids_may_be_any_integers(
    llm: tandem.LLM, prompts: Any, token_ids: list[tuple[int, ...]]
) -> None:
    outputs = llm.generate(prompts, tandem.SamplingParams(max_tokens=1))
    assert [output.prompt_token_ids for output in outputs] == token_ids


@pytest.mark.parametrize(
    "prompts",
    [5, None, [True], [[1.5]], [1.5], [None], [[1], None], b"abc", {"prompt": "x"}, [{"a": [1]}]],
    ids=str,
)
def test_other_prompts_are_refused(llm: tandem.LLM, prompts: Any) -> None:
    with pytest.raises(RequestError) as caught:
        llm.generate(prompts)
    assert caught.value.param == "prompt"


@pytest.mark.parametrize(
    ("arguments", "param"),
    [
        ({"n": "2"}, "n"),
        ({"n": 1.0}, "n"),
        ({"sampling_params": {"temperature": 0}}, "sampling_params"),
        ({"sampling_params": [None]}, "sampling_params"),
    ],
    ids=str,
)
def test_other_arguments_are_refused(llm: tandem.LLM, arguments: Any, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        llm.generate([5], **arguments)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([{"role": "user"}], r"messages\[0\] has no content"),
        ([{"role": "user", "content": None}], r"messages\[0\] has no content"),
        ([{"role": "user", "content": "x"}, {"content": "y"}], r"messages\[1\] must be a mapping"),
        ("Hi", r"messages\[0\] must be a mapping"),
    ],
    ids=str,
)
def test_messages_without_text_are_refused(llm: tandem.LLM, messages: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        llm.chat(messages)
    assert caught.value.param == "messages"


@pytest.mark.parametrize("options", [{"foo": 1}, {"max_num_seqs": "4"}, {"dtype": np.float32}])
def test_other_options_are_refused_before_anything_is_loaded(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        tandem.LLM("/nowhere", **options)
    assert caught.value.param in options


def test_the_default_length_is_cut_to_what_the_context_leaves(llm: tandem.LLM) -> None:
    short, long = llm.generate([[5], [5] * (MAX_MODEL_LEN - 3)])
    assert len(short.outputs[0].token_ids) == 16
    assert len(long.outputs[0].token_ids) == 3
    with pytest.raises(RequestError, match="64 tokens"):
        llm.generate([[5] * MAX_MODEL_LEN])
