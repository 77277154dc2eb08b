"""Every failure as OpenAI's clients expect it: `{"error": {message, type, param, code}}`."""

from starlette.responses import JSONResponse

from tandem.spec.errors import (
    ContextLengthError,
    OverloadError,
    RequestError,
    TandemError,
)

_RETRY_AFTER_S = 1


class ApiError(Exception):
    """A failure with its place in HTTP and in OpenAI's vocabulary.

    Args:
        status: of the HTTP answer.
        message: one line, cause first, remedy second.
        kind, param, code: `type`, `param` and `code` of the error object.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code

    def body(self) -> dict[str, object]:
        """The answer's body. What UTF-8 cannot express in a message is escaped."""
        message = self.message.encode("utf-8", "backslashreplace").decode("utf-8")
        return {
            "error": {
                "message": message,
                "type": self.kind,
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self) -> JSONResponse:
        """The answer."""
        headers = {"Retry-After": str(_RETRY_AFTER_S)} if self.status == 503 else {}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONResponse(self.body(), self.status, headers)


def api_error(error: Exception) -> ApiError:
    """The API's view of an error."""
    match error:
        case ApiError():
            return error
        case ContextLengthError():
            return ApiError(400, error.message, param=error.param, code="context_length_exceeded")
        case RequestError():
            return ApiError(400, error.message, param=error.param)
        case OverloadError():
            return ApiError(503, error.message, kind="overloaded_error", code="overloaded")
        case TandemError():
            return ApiError(500, error.message, kind="server_error", code="engine_error")
        case _:
            return ApiError(500, "internal error; see the server's log", kind="server_error")


def unknown_model(name: str) -> ApiError:
    """The model is not served here."""
    return ApiError(
        404,
        f"the model '{name}' is not served here; GET /v1/models lists what is",
        param="model",
        code="model_not_found",
    )
