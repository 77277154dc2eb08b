"""What stays free of an accelerator's memory where nobody says how much may be used."""

from tandem.spec.units import GIB

_SHARE_DIVISOR = 20
_MOST_BYTES = GIB


def margin_bytes(free_bytes: int) -> int:
    """A twentieth of what is free, at most 1 GiB: for the driver, a display, other processes.

    In proportion, so that a small memory is not all margin; bounded, since what others need does
    not grow with the card.
    """
    return min(free_bytes // _SHARE_DIVISOR, _MOST_BYTES)
