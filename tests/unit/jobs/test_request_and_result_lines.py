import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.answerer import answer_body, request_line

from tandem.api.errors import ApiError
from tandem.jobs.request_line import LineError, read_custom_id, read_fields, read_request
from tandem.jobs.result_line import Outcome, ResultWriter

WRITER = ResultWriter("0123456789abcdef")


def read(line: bytes) -> Any:
    fields = read_fields(line)
    return read_request(7, read_custom_id(fields), fields)


def test_a_request() -> None:
    request = read(request_line("a", extra="kept by the caller"))
    assert (request.number, request.custom_id, request.url) == (7, "a", "/v1/completions")
    assert request.body == {"prompt": "Hi"}


@pytest.mark.parametrize(
    ("line", "code", "custom_id"),
    [
        (b"{", "invalid_json_line", None),
        (b'"text"', "invalid_json_line", None),
        (b"[" * 100_000, "invalid_json_line", None),
        (b'{"custom_id": "\xff"}', "invalid_json_line", None),
        (b'{"custom_id": NaN}', "invalid_json_line", None),
        (b'{"custom_id": ' + b"9" * 5000 + b"}", "invalid_json_line", None),
        (request_line(7), "invalid_custom_id", None),
        (request_line(["a"]), "invalid_custom_id", None),
        (request_line(""), "invalid_custom_id", None),
        (request_line(None), "missing_custom_id", None),
        (b"{}", "missing_custom_id", None),
        (request_line("a", method="GET"), "invalid_method", "a"),
        (request_line("a", url="/v1/embeddings"), "invalid_url", "a"),
        (request_line("a", url=["/v1/completions"]), "invalid_url", "a"),
        (request_line("a", body="text"), "invalid_body", "a"),
        (request_line("a", body=None), "invalid_body", "a"),
    ],
)
def test_lines_that_are_no_requests(line: bytes, code: str, custom_id: str | None) -> None:
    with pytest.raises(LineError) as refused:
        read(line)
    assert (refused.value.code, refused.value.custom_id) == (code, custom_id)


def test_an_answer_has_the_form_of_openais_batch_api() -> None:
    result = WRITER.answer(12, "a", answer_body("hi", 3, 5))
    assert json.loads(result.data) == {
        "id": "batch_req_0123456789abcdef_12",
        "custom_id": "a",
        "response": {
            "status_code": 200,
            "request_id": "req_0123456789abcdef_12",
            "body": answer_body("hi", 3, 5),
        },
        "error": None,
    }
    assert result.outcome == Outcome(12, True, 3, 5)


def test_refusals_and_faults() -> None:
    refusal = WRITER.refusal(3, "a", ApiError(400, "no", param="n"))
    fields = json.loads(refusal.data)
    assert fields["response"]["status_code"] == 400
    assert fields["response"]["body"]["error"]["message"] == "no"
    assert fields["error"] is None
    fault = WRITER.fault(4, LineError("invalid_json_line", "not JSON"))
    fields = json.loads(fault.data)
    assert (fields["custom_id"], fields["response"]) == (None, None)
    assert fields["error"] == {"code": "invalid_json_line", "message": "line 4: not JSON"}
    assert refusal.outcome == Outcome(3, False)
    assert fault.outcome == Outcome(4, False)


def test_a_number_that_json_lacks_is_an_error() -> None:
    with pytest.raises(ValueError, match="Out of range"):
        WRITER.answer(1, "a", {**answer_body("x"), "logprob": float("-inf")})


@given(st.text(min_size=1), st.integers(1, 10**12), st.text())
def test_what_is_written_is_read_back(custom_id: str, number: int, text: str) -> None:
    fault = LineError("code", text, custom_id)
    for result in (
        WRITER.answer(number, custom_id, answer_body(text)),
        WRITER.refusal(number, custom_id, ApiError(500, text)),
        WRITER.fault(number, fault),
    ):
        assert result.data.endswith(b"\n")
        assert result.data.count(b"\n") == 1
        assert json.loads(result.data)["custom_id"] == custom_id
        assert WRITER.read(result.data) == result.outcome


def test_half_a_surrogate_pair_survives() -> None:
    result = WRITER.answer(1, "\ud800", answer_body("x"))
    assert json.loads(result.data.decode("utf-8"))["custom_id"] == "\ud800"


@given(st.data())
def test_a_torn_line_is_none(data: st.DataObject) -> None:
    whole = WRITER.answer(1, "a", answer_body("some text")).data[:-1]
    torn = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert WRITER.read(torn) is None


@pytest.mark.parametrize(
    "line",
    [
        b"null",
        b"7",
        b"{}",
        b'{"id": 7, "response": null}',
        b'{"id": "batch_req_0123456789abcdef_x", "response": null}',
        b'{"id": "batch_req_fedcba9876543210_1", "response": null}',
        b'{"id": "batch_req_0123456789abcdef_1"}',
        b'{"id": "batch_req_0123456789abcdef_1", "response": {"status_code": 200}}',
        b"\x00" * 4096,
        b"[" * 100_000,
    ],
)
def test_what_others_wrote_is_none(line: bytes) -> None:
    assert WRITER.read(line) is None
