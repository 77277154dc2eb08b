"""The memory ledger: predictions, measurements, capacities."""

import json

import pytest

from tandem.memory.ledger import LedgerEntry, LocationTotals, MemoryLedger
from tandem.spec.errors import ConfigError

MIB = 1 << 20


def filled() -> MemoryLedger:
    ledger = MemoryLedger({"device": 100 * MIB, "host": 50 * MIB})
    ledger.reserve("device", "weights", 60 * MIB)
    ledger.reserve("host", "staging", 10 * MIB)
    ledger.reserve("device", "workspace", 30 * MIB)
    return ledger


def test_totals_per_location() -> None:
    ledger = filled()
    ledger.record_actual("device", "weights", 64 * MIB)
    assert ledger.totals("device") == LocationTotals(
        location="device",
        predicted_bytes=90 * MIB,
        actual_bytes=64 * MIB,
        charged_bytes=94 * MIB,
        capacity_bytes=100 * MIB,
        peak_bytes=None,
        grown_bytes=None,
    )
    assert ledger.totals("host").actual_bytes is None


def test_reservation_beyond_capacity_names_the_numbers_and_changes_nothing() -> None:
    ledger = filled()
    before = ledger.entries
    with pytest.raises(ConfigError) as error:
        ledger.reserve("device", "kv pool", 11 * MIB)
    assert error.value.message == (
        "device memory too small: weights 60.0 MiB + workspace 30.0 MiB + kv pool 11.0 MiB "
        "= 101.0 MiB needed, 100.0 MiB there"
    )
    assert error.value.param == "gpu_memory"
    assert ledger.entries == before
    ledger.reserve("device", "kv pool", 10 * MIB)


def test_measurement_replaces_the_prediction_against_capacity() -> None:
    ledger = filled()
    ledger.record_actual("device", "workspace", 5 * MIB)
    assert ledger.budget("device").left_bytes == 35 * MIB
    ledger.record_actual("device", "workspace", 45 * MIB)  # a fact: noted, not refused
    assert ledger.budget("device").left_bytes == -5 * MIB
    with pytest.raises(ConfigError, match=r"workspace 45\.0 MiB"):
        ledger.budget("device").require()


def test_release_gives_room_back() -> None:
    ledger = filled()
    ledger.release("device", "weights")
    ledger.reserve("device", "weights", 70 * MIB)
    assert ledger.budget("device").left_bytes == 0
    with pytest.raises(KeyError):
        ledger.release("disk", "weights")


def test_location_without_capacity_is_unbounded() -> None:
    ledger = filled()
    ledger.reserve("disk", "weights", 1 << 50)
    assert ledger.totals("disk").capacity_bytes is None


def test_labels_are_unique_per_location() -> None:
    ledger = filled()
    ledger.reserve("host", "weights", 1)
    with pytest.raises(ValueError, match="'weights' is reserved in host memory already"):
        ledger.reserve("host", "weights", 1)
    with pytest.raises(ValueError, match="cannot take -1 bytes"):
        ledger.reserve("host", "negative", -1)
    with pytest.raises(KeyError):
        ledger.record_actual("host", "unknown", 1)


def test_peak_only_rises_and_growth_counts_from_warm_up() -> None:
    ledger = filled()
    ledger.record_peak("device", 80)
    ledger.record_peak("device", 70)
    assert ledger.totals("device").peak_bytes == 80
    assert ledger.totals("device").grown_bytes is None
    ledger.mark_warm()
    assert ledger.totals("device").grown_bytes == 0
    ledger.record_peak("device", 95)
    assert ledger.totals("device").grown_bytes == 15


def test_rows_are_grouped_by_location() -> None:
    assert filled().as_rows() == [
        LedgerEntry("device", "weights", 60 * MIB),
        LedgerEntry("device", "workspace", 30 * MIB),
        LedgerEntry("host", "staging", 10 * MIB),
    ]


def test_json_holds_entries_and_totals() -> None:
    ledger = filled()
    ledger.record_peak("swap", 3)
    read = json.loads(ledger.to_json())
    assert read["entries"][0] == {
        "location": "device",
        "label": "weights",
        "predicted_bytes": 60 * MIB,
        "actual_bytes": None,
    }
    assert [t["location"] for t in read["totals"]] == ["device", "host", "swap"]
    assert read["totals"][0]["charged_bytes"] == 90 * MIB
    assert read["totals"][2]["peak_bytes"] == 3
