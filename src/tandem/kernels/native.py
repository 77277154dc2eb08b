"""Whether the compiled CPU kernels are there, and which instruction set they use.

The rest of the package imports without them; the torch kernels are then used, and said to be.
"""

import os
from collections.abc import Mapping

from tandem.spec.errors import ConfigError

try:
    from tandem.kernels import _native as _extension
except ImportError as error:  # not built, or for another Python
    _extension = None
    _reason = str(error)
else:
    _reason = ""

HEAD_DIM_STEP, MAX_HEAD_DIM = 4, 512
ISA_VARIABLE = "TANDEM_CPU_ISA"


def available() -> bool:
    """Whether the compiled kernels can be used in this process."""
    return _extension is not None


def unavailable_message() -> str:
    """One line for users of an engine that runs without the compiled kernels."""
    return (
        f"CPU attention runs on the slow reference kernels, because the compiled ones could not be"
        f" loaded ({_reason}): install Tandem from a wheel, or where there is a C++20 compiler."
    )


def reason_against(head_dim: int) -> str | None:
    """Why attention with this head size is left to the reference kernels; None if it is not."""
    if not available():
        return unavailable_message()
    if head_dim % HEAD_DIM_STEP or head_dim > MAX_HEAD_DIM:
        return (
            f"CPU attention runs on the slow reference kernels: the compiled ones take head sizes"
            f" that are multiples of {HEAD_DIM_STEP} up to {MAX_HEAD_DIM}, and the model's is"
            f" {head_dim}."
        )
    return None


def choose_isa(environ: Mapping[str, str] | None = None) -> str:
    """Name of the instruction set to run with: the best here, or what TANDEM_CPU_ISA asks for.

    Args:
        environ: where to look the variable up; None: this process's environment.

    Raises:
        ConfigError: the kernels are not available, or cannot run with what is asked for.
    """
    if _extension is None:
        raise ConfigError(unavailable_message())
    name = (os.environ if environ is None else environ).get(ISA_VARIABLE, "")
    try:
        return _extension.choose_isa(name)
    except ValueError as error:
        raise ConfigError(f"{ISA_VARIABLE}: {error}") from None


def supported_isas() -> list[str]:
    """Instruction sets that the kernels can run with here, slowest first; empty if unavailable."""
    return [] if _extension is None else _extension.isa_names()
