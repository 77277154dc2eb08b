"""Errors that a user can cause and mend. Every message names the cause and the remedy."""

_SHOWN = 80  # characters


class TandemError(Exception):
    """Base of all errors shown to users as one line.

    Args:
        message: cause first, remedy second. Names in it may come from damaged files: what cannot
            be printed is escaped, so that it is one line.
        param: the offending parameter's public name, if one is to blame.
    """

    def __init__(self, message: str, *, param: str | None = None) -> None:
        self.message = message if message.isprintable() else _escaped(message)
        super().__init__(self.message)
        self.param = param


def _escaped(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shown(value: object) -> str:
    """What was given, in quotes if it is text, and cut if it would fill the screen."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


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
