"""Errors that a user can cause and mend. Every message names the cause and the remedy."""


class TandemError(Exception):
    """Base of all errors shown to users as one line.

    Args:
        message: one line, cause first, remedy second.
        param: the offending parameter's public name, if one is to blame.
    """

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class ConfigError(TandemError):
    """A flag, size or combination of options that cannot be carried out."""


class ShortOfMemoryError(ConfigError):
    """Something does not fit; names the numbers. Who knows all settings adds the remedy."""


class ModelError(TandemError):
    """A model directory that is missing, damaged or of an unsupported kind."""


class RequestError(TandemError):
    """A request that this engine will never be able to serve (HTTP 400)."""


class ContextLengthError(RequestError):
    """Prompt plus output exceed what the model or the memory allows."""


class OverloadError(TandemError):
    """The queue is full; the same request may be accepted later (HTTP 503)."""


class EngineDeadError(TandemError):
    """The engine has stopped; running requests were failed with this error (HTTP 503)."""
