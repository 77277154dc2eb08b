import json
from typing import Any

import pytest
from tests.fakes.answerer import request_line

from tandem.api.errors import ApiError
from tandem.engine.frontend.prompts import PromptReader
from tandem.jobs.lengths import JobLengths, LengthReader, read_lengths
from tandem.jobs.lines import Line, Place
from tandem.jobs.request_line import LineError
from tandem.spec.errors import ConfigError, RequestError
from tandem.spec.workload import RequestShape

LONGEST = 50


def reader(names: tuple[str, ...] | None = ("m",)) -> LengthReader:
    return LengthReader(PromptReader(None, vocab_size=100, max_model_len=LONGEST), names)


def line(number: int = 1, **changes: Any) -> Line:
    data = request_line(f"r{number}", **changes).strip()
    return Line(Place(number, 0), Place(number + 1, len(data)), data)


def body(tokens: int, **more: Any) -> dict[str, Any]:
    return {"prompt": [7] * tokens, **more}


def test_tokens_are_counted_as_a_request_allows_them() -> None:
    assert list(reader().read(line(body=body(9, max_tokens=20)))) == [(RequestShape(9, 20), False)]
    # OpenAI's default, and what the context leaves of it
    assert list(reader().read(line(body=body(9)))) == [(RequestShape(9, 16), False)]
    assert list(reader().read(line(body=body(40)))) == [(RequestShape(40, 10), False)]


def test_every_sequence_counts() -> None:
    prompts = {"prompt": [[1, 2, 3], [4]], "n": 2, "max_tokens": 5, "temperature": 1.0}
    shapes = [shape for shape, _ in reader().read(line(body=prompts))]
    assert shapes == [RequestShape(3, 5)] * 2 + [RequestShape(1, 5)] * 2


def test_conversations_may_fill_the_context(tokenizer_reader: LengthReader) -> None:
    chat = {"messages": [{"role": "user", "content": "Hello"}]}
    ((shape, is_open),) = tokenizer_reader.read(line(url="/v1/chat/completions", body=chat))
    assert is_open
    assert shape.prompt_tokens + shape.generated_tokens == LONGEST
    ((shape, is_open),) = tokenizer_reader.read(
        line(url="/v1/chat/completions", body={**chat, "max_completion_tokens": 3})
    )
    assert (shape.generated_tokens, is_open) == (3, False)


@pytest.fixture
def tokenizer_reader() -> LengthReader:
    from tandem.engine.frontend.tokenizer_files import load_tokenizer
    from tandem.models.resolve import resolve_model

    tokenizer = load_tokenizer(resolve_model("demo"))
    return LengthReader(PromptReader(tokenizer, vocab_size=1 << 20, max_model_len=LONGEST), ("m",))


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"method": "GET"}, LineError, "method must be 'POST'"),
        ({"body": body(5, model="other")}, ApiError, "'other' is not served here"),
        ({"body": body(5, stream=True)}, ApiError, "a batch does not stream"),
        ({"body": body(40, max_tokens=11)}, RequestError, "40 prompt tokens and 11 output tokens"),
        ({"body": body(40, max_tokens=9, min_tokens=9)}, None, ""),
        ({"body": {"prompt": "text"}}, RequestError, "no tokenizer"),
    ],
)
def test_what_can_never_run_is_told(
    changes: dict[str, Any], error: type[Exception] | None, message: str
) -> None:
    if error is None:
        assert list(reader().read(line(**changes))) == [(RequestShape(40, 9), False)]
        return
    with pytest.raises(error) as raised:
        list(reader().read(line(**changes)))
    assert message in getattr(raised.value, "message", "")


def test_requests_may_name_any_model_where_none_is_served() -> None:
    assert list(reader(None).read(line(body=body(5, model="gpt-4", max_tokens=2))))


def test_lines_that_cannot_run_are_left_out_and_counted() -> None:
    too_long = Line(Place(3, 0), Place(4, 9), None)
    lines = [line(1, body=body(5, max_tokens=2)), line(2, method="GET"), too_long]
    lines.append(line(4, body=body(5, max_tokens=2)))
    lines.append(line(5, body=body(40, max_tokens=11)))
    found = read_lengths(lines, reader())
    assert found == JobLengths((RequestShape(5, 2),) * 2, 0, 3, num_too_long=1)
    assert found.shapes[0] is found.shapes[1]  # a million lines take little memory
    notes = found.workload("in.jsonl").notes
    assert any("too long: 3, left out" in note for note in notes)


def test_open_ends_are_said_with_the_remedy() -> None:
    workload = JobLengths((RequestShape(5, 45), RequestShape(5, 2)), num_open=1).workload("f")
    assert "1 of 2 requests have no max_tokens" in workload.notes[1]
    assert "--max-model-len" in workload.notes[1]
    assert workload.duration_s == 0


def test_outputs_without_max_tokens_are_told_apart(tokenizer_reader: LengthReader) -> None:
    chat = {"messages": [{"role": "user", "content": "Hi"}]}
    open_line = line(1, url="/v1/chat/completions", body=chat)
    found = read_lengths([open_line, line(2, body=body(5, max_tokens=2))], tokenizer_reader)
    filling, _ = found.shapes
    assert (found.num_open, found.open_tokens) == (1, filling.generated_tokens)
    assert found.bounded_tokens == filling.prompt_tokens + 5 + 2


def test_no_request_is_no_workload() -> None:
    with pytest.raises(ConfigError, match="holds no request"):
        read_lengths([Line(Place(), Place(2, 2), json.dumps([]).encode())], reader()).workload("f")
