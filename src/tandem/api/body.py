"""Reads JSON into a request's schema; every fault is one clear error."""

import json
import sys
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from tandem.api.errors import ApiError, unsupported
from tandem.api.schema_errors import refuse

ModelT = TypeVar("ModelT", bound=BaseModel)


class StrictBody(BaseModel):
    """Base of request schemas: no conversions, and unknown fields are kept to be refused."""

    model_config = ConfigDict(strict=True, extra="allow")


def parse_body(data: bytes, schema: type[ModelT]) -> ModelT:
    """Parse and check the JSON text of a request.

    Raises:
        ApiError: it is not UTF-8, not JSON, not an object, or does not follow the schema.
    """
    return check_body(parse_object(data), schema)


def check_body(data: dict[str, Any], schema: type[ModelT]) -> ModelT:
    """Check a request that is parsed already.

    Raises:
        ApiError: it does not follow the schema.
    """
    try:
        body = schema.model_validate(data)
    except ValidationError as error:
        refuse(error)
    refuse_unknown(body)
    return body


def parse_object(data: bytes, what: str = "the body") -> dict[str, Any]:
    """The JSON object that `data` is; `what` stands for it in errors.

    Raises:
        ApiError: it is not UTF-8, not JSON, or not an object.
    """
    try:
        value = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise ApiError(400, f"{what} is not UTF-8 (byte {error.start}); encode it so") from None
    except RecursionError:
        raise ApiError(400, f"{what} is nested too deeply; send flat JSON") from None
    except (json.JSONDecodeError, _ConstantError) as error:
        raise ApiError(400, f"{what} is not JSON: {error}; send a JSON object") from None
    except ValueError:  # Python's bound on the time that reading a number takes
        most = sys.get_int_max_str_digits()
        raise ApiError(
            400, f"{what} holds a whole number of more than {most} digits; send a smaller one"
        ) from None
    if not isinstance(value, dict):
        raise ApiError(400, f"{what} is not a JSON object; send {{...}}")
    return value


def refuse_unknown(body: BaseModel, prefix: str = "") -> None:
    """Refuse fields that the schema lacks, unless they are null and so ask for nothing.

    Raises:
        ApiError: there is one; ignoring it silently could change what the caller gets.
    """
    for name, value in (body.model_extra or {}).items():
        if value is not None:
            field = f"{prefix}{name}"
            raise unsupported(f"the field '{field}' is not supported; leave it out", field)


class _ConstantError(ValueError):
    """NaN or an infinity."""


def _refuse_constant(name: str) -> NoReturn:
    raise _ConstantError(f"{name} is not a JSON value")
