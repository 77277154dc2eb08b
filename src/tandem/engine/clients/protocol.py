"""What an engine client and an engine process say to each other.

To the engine process:
    ("start", factory, config_json)   build the core: `module:function`, a configuration
    ("submit", request)               see `pack_request`
    ("abort", request_id)
    ("stats", number)
    ("close",)

From it, while it loads:
    ("progress", what, done, total)
    ("ready",) or ("failed", error)   see `pack_error`

From it, afterwards:
    ("accepted", request_id)
    ("refused", request_id, error)
    ("output", output)                see `pack_output`
    ("stats", number, stats)
    ("dead", error)                   nothing follows
"""

from typing import Any

from tandem.engine.clients.mailbox import Accepted, Event, Failed
from tandem.spec import errors
from tandem.spec.errors import TandemError
from tandem.spec.request import EngineRequest, FinishReason, RequestOutput, TokenLogprobs
from tandem.spec.sampling import SamplingParams

Packed = dict[str, Any]


def pack_request(request: EngineRequest) -> Packed:
    """A request as plain values."""
    return {**_fields(request), "sampling": _fields(request.sampling)}


def unpack_request(packed: Packed) -> EngineRequest:
    """Inverse of `pack_request`."""
    return EngineRequest(**{**packed, "sampling": SamplingParams(**packed["sampling"])})


def pack_output(output: RequestOutput) -> Packed:
    """An output as plain values."""
    return {**_fields(output), "logprobs": [_fields(entry) for entry in output.logprobs]}


def unpack_output(packed: Packed) -> RequestOutput:
    """Inverse of `pack_output`."""
    reason = packed["finish_reason"]
    return RequestOutput(
        **{
            **packed,
            "finish_reason": None if reason is None else FinishReason(reason),
            "logprobs": tuple(TokenLogprobs(**entry) for entry in packed["logprobs"]),
        }
    )


def pack_error(error: BaseException) -> Packed:
    """An error as its class's name, message and parameter."""
    if isinstance(error, TandemError):
        return {"kind": type(error).__name__, "message": error.message, "param": error.param}
    reason = f"{type(error).__name__}: {error}"
    return {"kind": "TandemError", "message": f"internal error ({reason})", "param": None}


def unpack_error(packed: Packed) -> TandemError:
    """The error that was packed; of the base class if its own lies outside `spec.errors`."""
    kind = getattr(errors, packed["kind"], TandemError)
    return kind(packed["message"], param=packed["param"])


def pack_event(event: Event) -> tuple[Any, ...]:
    """An event as a message."""
    match event:
        case Accepted(request_id):
            return ("accepted", request_id)
        case Failed(request_id, error):
            return ("refused", request_id, pack_error(error))
        case RequestOutput():
            return ("output", pack_output(event))


def unpack_event(message: tuple[Any, ...]) -> Event | None:
    """Inverse of `pack_event`; None if the message is no event."""
    match message:
        case ("accepted", request_id):
            return Accepted(request_id)
        case ("refused", request_id, error):
            return Failed(request_id, unpack_error(error))
        case ("output", output):
            return unpack_output(output)
        case _:
            return None


def _fields(facts: object) -> Packed:
    # Not dataclasses.asdict: it copies token lists element by element.
    return {name: getattr(facts, name) for name in type(facts).__dataclass_fields__}  # pyright: ignore[reportAttributeAccessIssue]
