"""Errors as HTTP answers."""

from starlette.responses import JSONResponse

from tandem.api.errors import ApiError


def error_response(error: ApiError) -> JSONResponse:
    """The answer to a request that failed."""
    headers = {} if error.retry_after_s is None else {"Retry-After": str(error.retry_after_s)}
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(error.body(), error.status, headers)
