"""Reads the body of an HTTP request into a schema."""

from starlette.requests import Request

from tandem.api.body import ModelT, parse_body


async def read_body(request: Request, schema: type[ModelT]) -> ModelT:
    """Parse and check a body, whatever its content type says.

    Raises:
        ApiError: it is not UTF-8, not JSON, not an object, or does not follow the schema.
    """
    return parse_body(await request.body(), schema)
