"""What was freed goes back to the system."""

import platform

import pytest

from tandem.devices.heap import give_back_freed
from tandem.memory.peaks import read_host_memory
from tandem.spec.units import KIB, MIB


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps so much")
def test_pages_below_what_is_in_use_are_given_back() -> None:
    """Pieces too small for mappings of their own, of which the last one stays in use."""
    give_back_freed()
    pieces = [bytearray(64 * KIB) for _ in range(1024)]
    last = pieces.pop()
    full = read_host_memory().rss_bytes
    pieces.clear()
    give_back_freed()
    assert read_host_memory().rss_bytes < full - 48 * MIB
    assert len(last) == 64 * KIB
