"""Every failure as OpenAI's clients expect it: `{"error": {message, type, param, code}}`."""

from tandem.spec.errors import (
    ContextLengthError,
    EngineDeadError,
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
        retry_after_s: when the same request may succeed, if it may.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s

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


def unsupported(message: str, param: str) -> ApiError:
    """For what Tandem does not do: its code tells that from a mistake, without the message."""
    return ApiError(400, message, param=param, code="unsupported_parameter")


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
            return ApiError(
                503,
                error.message,
                kind="overloaded_error",
                code="overloaded",
                retry_after_s=_RETRY_AFTER_S,
            )
        case EngineDeadError():
            # As /health says it: a balancer takes the request elsewhere, this server ends.
            return ApiError(503, error.message, kind="server_error", code="engine_dead")
        case TandemError():
            return ApiError(500, error.message, kind="server_error", code="engine_error")
        case _:
            return ApiError(500, "internal error; see the log", kind="server_error")
