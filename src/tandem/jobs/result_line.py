"""One line of a job's output, in the form of OpenAI's Batch API.

A line's `id` names the job and the input line, so that the output says by itself what is done.
"""

import json
from dataclasses import dataclass
from typing import Any

from tandem.api.errors import ApiError
from tandem.jobs.request_line import LineError

_OK_STATUS = 200


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an input line.

    Attributes:
        number: the input line's.
        is_ok: it was answered.
        num_prompt_tokens, num_output_tokens: what the answer took.
    """

    number: int
    is_ok: bool
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class ResultLine:
    """The bytes of a result, newline included, and what they say."""

    outcome: Outcome
    data: bytes


class ResultWriter:
    """Writes results of the job `job_id`."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._id_prefix = f"batch_req_{job_id}_"

    def answer(self, number: int, custom_id: str, body: dict[str, Any]) -> ResultLine:
        """A request that was answered.

        Raises:
            ValueError: the body holds a number that JSON lacks.
        """
        return self._line(number, custom_id, self._response(number, _OK_STATUS, body), None)

    def refusal(self, number: int, custom_id: str, error: ApiError) -> ResultLine:
        """A request that was refused or failed."""
        response = self._response(number, error.status, error.body())
        return self._line(number, custom_id, response, None)

    def fault(self, number: int, error: LineError) -> ResultLine:
        """A line that is no request."""
        message = f"line {number}: {error.message}"
        return self._line(number, error.custom_id, None, {"code": error.code, "message": message})

    def read(self, data: bytes) -> Outcome | None:
        """What a line of the output says; None if this job did not write it, or not to its end."""
        try:
            fields = json.loads(data)
            job, number = fields["id"].removeprefix("batch_req_").split("_")
            if job != self._job_id:
                return None
            return _outcome(int(number), fields["response"])
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None

    def _response(self, number: int, status: int, body: dict[str, Any]) -> dict[str, Any]:
        request_id = f"req_{self._job_id}_{number}"
        return {"status_code": status, "request_id": request_id, "body": body}

    def _line(
        self,
        number: int,
        custom_id: str | None,
        response: dict[str, Any] | None,
        error: dict[str, Any] | None,
    ) -> ResultLine:
        fields = {
            "id": f"{self._id_prefix}{number}",
            "custom_id": custom_id,
            "response": response,
            "error": error,
        }
        return ResultLine(_outcome(number, response), _encode(fields) + b"\n")


def _outcome(number: int, response: dict[str, Any] | None) -> Outcome:
    if response is None or response["status_code"] != _OK_STATUS:
        return Outcome(number, False)
    usage = response["body"]["usage"]
    return Outcome(number, True, usage["prompt_tokens"], usage["completion_tokens"])


def _encode(fields: dict[str, Any]) -> bytes:
    def dump(ensure_ascii: bool) -> bytes:
        text = json.dumps(fields, ensure_ascii=ensure_ascii, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8")

    try:
        return dump(ensure_ascii=False)
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can express and UTF-8 cannot
        return dump(ensure_ascii=True)
