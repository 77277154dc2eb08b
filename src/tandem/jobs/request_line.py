"""One line of a job's input, in the form of OpenAI's Batch API."""

from dataclasses import dataclass
from typing import Any

from tandem.api.body import parse_object
from tandem.api.errors import ApiError
from tandem.spec import forms

URLS = ("/v1/chat/completions", "/v1/completions")


class LineError(Exception):
    """A line that is no request.

    Args:
        code: as OpenAI names the fault, where it does.
        message: cause first, remedy second.
        custom_id: the line's, if it has one.
    """

    def __init__(self, code: str, message: str, custom_id: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.custom_id = custom_id


@dataclass(frozen=True, slots=True)
class RequestLine:
    """A request to one of `URLS`.

    Attributes:
        number: of its line, from 1.
    """

    number: int
    custom_id: str
    url: str
    body: dict[str, Any]


def read_fields(data: bytes) -> dict[str, Any]:
    """The object on a line.

    Raises:
        LineError: there is none.
    """
    try:
        return parse_object(data, "the line")
    except ApiError as error:
        raise LineError("invalid_json_line", error.message) from None


def read_custom_id(fields: dict[str, Any]) -> str:
    """The line's own name.

    Raises:
        LineError: it has none, or one that is no text.
    """
    custom_id = fields.get("custom_id")
    if custom_id is None:
        raise LineError("missing_custom_id", "custom_id is missing; give each line its own text")
    if not isinstance(custom_id, str) or not custom_id:
        raise LineError(
            "invalid_custom_id",
            f"custom_id must be a text that is not empty, not {forms.shown(custom_id)}; "
            "write it in quotes",
        )
    return custom_id


def read_request(number: int, custom_id: str, fields: dict[str, Any]) -> RequestLine:
    """The request on line `number`. Fields that the format does not know are ignored.

    Raises:
        LineError: method, url or body are missing or unsupported.
    """
    if fields.get("method") != "POST":
        raise LineError("invalid_method", "method must be 'POST'; set it", custom_id)
    url = fields.get("url")
    if url not in URLS:
        raise LineError("invalid_url", f"url must be {' or '.join(URLS)}; set it", custom_id)
    body = fields.get("body")
    if not isinstance(body, dict):
        raise LineError("invalid_body", "body must be a JSON object; give one", custom_id)
    return RequestLine(number, custom_id, str(url), body)
