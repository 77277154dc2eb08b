"""Whether the planner's loops over virtual time are compiled (`native/planner/`).

Where they are not, those of Python run: what the compiled ones are compared with, and slower. Both
give the same results, to the bit.
"""

try:
    from tandem.planner import _loops as _extension
except ImportError as error:  # not built, or for another Python
    loops = None
    _reason = str(error)
else:
    loops = _extension
    _reason = ""


def available() -> bool:
    """Whether the compiled loops can be used in this process."""
    return loops is not None


def unavailable_message() -> str:
    """One line for users of a planner that runs without the compiled loops."""
    return (
        f"plans are the same and take several times as long, because the compiled loops could not"
        f" be loaded ({_reason}): install Tandem from a wheel, or where there is a C++20 compiler."
    )
