"""What a person is told after loading."""

from dataclasses import asdict

from tests.support.engines import toy_engine
from tests.support.setups import Setup

from tandem.engine.describe import describe_load, describe_overlap, later_notes
from tandem.runtime.measures import OverlapTotals


def test_it_names_the_model_each_tier_that_has_blocks_and_every_note() -> None:
    with toy_engine(Setup(strategy="ride-along", device_blocks=3, host_blocks=5)) as engine:
        stats = asdict(engine.stats) | {"notes": ("context limited", "another")}
    first, second, *notes = describe_load("some/model", stats)
    assert first.startswith("some/model in float32 on under test; up to ")
    assert "3 blocks of 16 tokens" in second
    assert "on the device + 5 blocks of 16 tokens" in second
    assert second.endswith("on the host; strategy ride-along")
    assert notes == ["note: context limited", "note: another"]


def test_notes_of_later_are_told_apart_from_those_of_the_start() -> None:
    with toy_engine(Setup(device_blocks=3)) as engine:
        stats = asdict(engine.stats) | {"notes": ("context limited",)}
    description = describe_load("m", stats)
    assert later_notes(description, stats) == []
    later = stats | {"notes": ("context limited", "planned anew")}
    assert later_notes(description, later) == ["planned anew"]


def test_a_single_tier_is_not_named() -> None:
    with toy_engine(Setup(device_blocks=3)) as engine:
        stats = asdict(engine.stats)
    assert "on the" not in describe_load("m", stats)[1]


def test_locked_memory_is_told_where_there_is_any() -> None:
    with toy_engine(Setup(device_blocks=3)) as engine:
        stats = asdict(engine.stats)
    assert "locked" not in describe_load("m", stats)[1]
    locked = describe_load("m", stats | {"pinned_bytes": 3 << 30})[1]
    assert locked.endswith("; 3.0 GiB of host memory locked for copies")


def test_overlap_is_one_line_where_there_is_any() -> None:
    def line(totals: OverlapTotals | None) -> str | None:
        return describe_overlap({"overlap": totals and asdict(totals)})

    assert line(None) is None
    assert line(OverlapTotals()) is None
    alone = "the accelerator was idle for 12.5% of the time"
    assert line(OverlapTotals(9, 8.0, 7.0)) == alone
    both = f"{alone}; 75% of the CPU's attention beside its work"
    assert line(OverlapTotals(9, 8.0, 7.0, 4.0, 3.0)) == both
