"""The process's peak counts from where it was asked to begin."""

from tandem.memory.peaks import HostMemory
from tandem.memory.process_peak import ProcessPeak


def memory(rss: int, highest: int) -> HostMemory:
    return HostMemory(rss, highest, 1000, 1000, 1000, None, None, None)


def test_what_was_held_before_is_not_counted() -> None:
    peak = ProcessPeak(memory(20, 90))
    assert peak.look(memory(30, 90)) == 30
    assert peak.look(memory(25, 90)) == 30


def test_a_peak_between_two_looks_is_seen_once_it_is_the_highest() -> None:
    peak = ProcessPeak(memory(20, 90))
    assert peak.look(memory(40, 120)) == 120
    assert peak.look(memory(10, 120)) == 120
