"""Reads the body of an HTTP request into a schema."""

from starlette.requests import ClientDisconnect, Request

from tandem.api.body import ModelT, parse_body
from tandem.server.disconnect import ClientGoneError


async def read_body(request: Request, schema: type[ModelT]) -> ModelT:
    """Parse and check a body, whatever its content type says.

    Raises:
        ApiError: it is not UTF-8, not JSON, not an object, or does not follow the schema.
        ClientGoneError: the client disconnected before all of it was there.
    """
    try:
        data = await request.body()
    except ClientDisconnect:
        raise ClientGoneError from None
    return parse_body(data, schema)
