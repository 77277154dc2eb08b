import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tandem.spec.errors import ConfigError
from tandem.spec.trace_file import is_batch_file, read_trace
from tandem.spec.units import (
    format_duration,
    format_figure,
    parse_duration_s,
    parse_rate_bytes_per_s,
    parse_size,
    parse_size_with_unit,
)
from tandem.spec.workload import (
    RequestShape,
    Workload,
    are_alike,
    drawn_workload,
    parse_lengths,
)

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def test_fixed_lengths_come_at_once() -> None:
    made = drawn_workload(parse_lengths("512", "prompt"), parse_lengths("128", "generate"), 3)
    assert made.requests == (RequestShape(512, 128),) * 3
    assert made.duration_s == 0


def test_requests_are_alike_if_none_differs() -> None:
    one = RequestShape(512, 128)
    assert are_alike([])
    assert are_alike([one])
    assert are_alike((one,) * 3)
    assert are_alike([one, RequestShape(512, 128)])
    assert not are_alike([one, one, RequestShape(512, 127)])
    assert not are_alike([one, RequestShape(512, 128, arrival_s=1.0)])


@pytest.mark.parametrize(
    ("text", "mean", "low", "high"),
    [
        ("400-600", 500, 400, 600),
        ("exp:300", 300, 1, 10_000),
        ("lognormal:300,200", 300, 1, 10_000),
    ],
)
def test_a_distribution_has_its_mean(text: str, mean: float, low: int, high: int) -> None:
    lengths, rng = parse_lengths(text, "prompt"), random.Random(0)
    drawn = [lengths.draw(rng) for _ in range(20_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(mean, rel=0.03)
    assert low <= min(drawn) <= max(drawn) <= high
    assert len(set(drawn)) > 100


def test_poisson_arrivals_have_their_rate_and_a_seed() -> None:
    lengths = parse_lengths("8-16", "prompt"), parse_lengths("8", "generate")
    made = drawn_workload(*lengths, 4000, rate_per_s=5.0, seed=1)
    assert made.duration_s == pytest.approx(4000 / 5.0, rel=0.05)
    arrivals = [request.arrival_s for request in made.requests]
    assert arrivals[0] == 0
    assert arrivals == sorted(arrivals)
    assert made == drawn_workload(*lengths, 4000, rate_per_s=5.0, seed=1)
    assert made != drawn_workload(*lengths, 4000, rate_per_s=5.0, seed=2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-5",
        "0",
        "5-3",
        "0-3",
        "exp:",
        "exp:0.2",
        "lognormal:5,0",
        "lognormal:5,2,4",
        "12 tokens",
        "1e9",
        "²",
        "٣",
        "5-²",
        "9" * 5000,
        "1-" + "9" * 5000,
        "9" * 5000 + "-5",
        "exp:" + "9" * 400,
        "lognormal:5," + "9" * 200,
        "lognormal:5," + "9" * 400,
    ],
    ids=lambda text: text[:16],
)
def test_what_is_no_length_is_refused(text: str) -> None:
    pattern = (
        r"--generate '.* (is no number of tokens|must be at|is the wrong way round; write 3-5$)"
    )
    with pytest.raises(ConfigError, match=pattern) as error:
        parse_lengths(text, "generate")
    assert len(error.value.message) < 250


def test_any_number_of_digits_bounds_what_is_drawn() -> None:
    assert parse_lengths("lognormal:5,2," + "9" * 5000, "prompt").draw(random.Random(0)) >= 1


def test_a_workload_without_requests_is_refused() -> None:
    with pytest.raises(ConfigError, match="trace x holds no request"):
        Workload("trace x", ())


def test_an_azure_trace_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        HEADER + "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
        "2023-11-16 18:16:01.0000000,879,55\n",
        "utf-8",
    )
    first, second, third = read_trace(path).requests
    assert first == RequestShape(374, 44, 0.0)
    assert second.arrival_s == pytest.approx(4.314579, abs=1e-6)
    assert (third.prompt_tokens, third.generated_tokens) == (879, 55)
    assert third.arrival_s == pytest.approx(14.31941, abs=1e-6)


def test_columns_may_stand_elsewhere_and_times_be_seconds(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(
        "Model,GeneratedTokens,ContextTokens,TIMESTAMP\na,7,70,12.5\na,8,80,10\n\n", "utf-8"
    )
    assert read_trace(path).requests == (RequestShape(80, 8, 0.0), RequestShape(70, 7, 2.5))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty; give one"),
        (HEADER, r"trace t\.csv holds no request"),
        ("a,b\n1,2\n", "line 1: the header lacks TIMESTAMP"),
        (HEADER + "1,5,5\n2,5\n", "line 3: 2 fields where the header has 3"),
        (HEADER + "1,5,5\n2,-5,5\n", "line 3: ContextTokens must be a whole number from 1"),
        (HEADER + "1,0,5\n", "line 2: ContextTokens must be a whole number from 1 to 1.*, not 0"),
        (HEADER + "1,5,-1\n", "line 2: GeneratedTokens must be a whole number from 0 to 1"),
        (HEADER + "1,5,0\n2,5,0\n", "none of its 2 requests generates a token"),
        (HEADER + "1,5,many\n", "line 2: GeneratedTokens must be a whole number"),
        (HEADER + "noon,5,5\n", "line 2: TIMESTAMP 'noon' is neither"),
        (HEADER + "2023-13-01 00:00:00,5,5\n", "line 2: TIMESTAMP"),
        (HEADER + "1,5,5\n2023-02-31 18:59:59,5,5\n", "line 3: TIMESTAMP '2023-02-31 18:59:59' is"),
        (HEADER + "2023-02-28 18:99:00,5,5\n", "line 2: TIMESTAMP .* is no date .*; mend it"),
        (HEADER + "2023-02-28 18:00:99,5,5\n", "line 2: TIMESTAMP .* is no date .*; mend it"),
        (HEADER + "0000-01-01 00:00:00,5,5\n", "line 2: TIMESTAMP .* is no date .*; mend it"),
        (HEADER + "9" * 400 + ",5,5\n", r"line 2: TIMESTAMP '9+\.\.\. is neither"),
        (HEADER + "1,²,5\n", "line 2: ContextTokens must be a whole number"),
        (HEADER + "1,10000001,5\n", "line 2: ContextTokens must be .* to 10000000, not 10000001"),
        (HEADER + "1,5,5\n1," + "9" * 5000 + ",5\n", r"line 3: ContextTokens must .*9\.\.\.$"),
        (HEADER + "1,5,5\n1,5," + "x" * 200_000 + "\n", r"line 3: not CSV \(field larger"),
        ("x" * 200_000 + "\n1,5,5\n", r"line 1: not CSV \(field larger"),
    ],
    ids=lambda text: text[-40:],
)
def test_a_malformed_trace_is_refused_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=message) as error:
        read_trace(path)
    assert "\n" not in error.value.message
    assert len(error.value.message) < 400


def test_lines_that_generate_no_token_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "1,5,0\n2,6,3\n4,7,0\n5,8,4\n", "utf-8")
    made = read_trace(path)
    assert made.requests == (RequestShape(6, 3, 0.0), RequestShape(8, 4, 3.0))
    assert made.notes == ("trace.csv: 2 of 4 requests generate no token: left out",)
    assert made.timed


def test_a_trace_may_come_through_a_pipe() -> None:
    reading, writing = os.pipe()
    with open(reading, "rb"):
        with open(writing, "w", encoding="utf-8") as pipe:
            pipe.write(HEADER + "1,5,5\n")
        path = Path(f"/dev/fd/{reading}")
        assert not is_batch_file(path)
        assert read_trace(path).requests == (RequestShape(5, 5, 0.0),)


def test_dates_count_the_days_between_them(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + "2024-02-28 23:00:00.5,1,1\n2024-03-01T00:00:00Z,2,2\n", "utf-8")
    assert read_trace(path).duration_s == pytest.approx(25 * 3600 - 0.5)


def test_a_file_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_trace(tmp_path / "none.csv")


def test_durations_and_sizes_need_units() -> None:
    assert parse_duration_s("100ms") == pytest.approx(0.1)
    assert parse_duration_s("2 min") == 120
    faults = {"100": "has no unit", "-1s": "is below 0", "0s": "is not a dur", "1 year": "is not a"}
    for text, fault in faults.items():
        with pytest.raises(ConfigError, match=rf"^'{text}' {fault}.*; write for example 100ms"):
            parse_duration_s(text)
    rates = {"3.5": "has no unit", "-1GB/s": "is below 0", "3GB": "is not a rate", "0GB/s": "is no"}
    for text, fault in rates.items():
        with pytest.raises(ConfigError, match=rf"^'{text}' {fault}.*; write for example 3\.5GB/s"):
            parse_rate_bytes_per_s(text)
    assert parse_size_with_unit("2GiB") == 2 << 30
    with pytest.raises(ConfigError, match="'24' has no unit; write for example 24GiB"):
        parse_size_with_unit("24")
    with pytest.raises(
        ConfigError, match=r"'-3GiB' is below 0; write for example 12GiB or 800MiB$"
    ):
        parse_size_with_unit("-3GiB")
    with pytest.raises(ConfigError, match="'0GiB' is no memory at all"):
        parse_size_with_unit("0GiB")
    assert parse_size_with_unit("0GiB", allows_nothing=True) == 0


@pytest.mark.parametrize("parse", [parse_size, parse_size_with_unit])
def test_a_size_beyond_all_measure_is_refused(parse: Callable[[str], int]) -> None:
    for digits in (308, 400, 5000):
        with pytest.raises(ConfigError, match=r"^'9+\.\.\. is not a size; write for example 12GiB"):
            parse("9" * digits + "GiB")


def test_a_rate_or_a_duration_beyond_all_measure_is_refused() -> None:
    for number in ("9" * 400, "9" * 5000, "0." + "0" * 320 + "1"):
        with pytest.raises(ConfigError, match=r"^'.* is not a rate; write for example 3\.5GB/s$"):
            parse_rate_bytes_per_s(f"{number}GB/s")
        with pytest.raises(ConfigError, match=r"^'.* is not a duration; write for example 100ms"):
            parse_duration_s(f"{number}us")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0052, "5.2 ms"),
        (0.9997, "1 s"),
        (1.5, "1.5 s"),
        (600, "10 min"),
        (7199, "2 h 00 min"),
        (40_020, "11 h 07 min"),
        (864_000, "10.0 days"),
    ],
)
def test_durations_are_written_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0512, "0.0512"), (38.04, "38"), (999.6, "1,000"), (6962.4, "6,960"),
     (1_234_567, "1,230,000")],
)  # fmt: skip
def test_figures_are_written_without_powers_of_ten(value: float, text: str) -> None:
    assert format_figure(value) == text
