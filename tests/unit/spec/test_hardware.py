from pathlib import Path
from typing import Any

import pytest

from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.hardware_file import (
    ACCELERATORS,
    HOSTS,
    PAIRS,
    known_accelerators,
    known_hardware,
    known_hosts,
    load_accelerator,
    load_hardware,
    load_host,
    pair_hardware,
    parse_hardware,
)


def table() -> dict[str, Any]:
    return {
        "name": "X",
        "accelerator": {
            "memory_bytes": 1000,
            "memory_bandwidth_bytes_per_s": 100.0,
            "memory_efficiency": 0.5,
            "compute_efficiency": 1.0,
            "launch_latency_s": 0.0,
            "kernel_overhead_s": 1e-6,
            "flops_per_s": {"float32": 10.0, "float16": 20.0, "bfloat16": 30},
        },
        "link": {"h2d_bytes_per_s": 10.0, "d2h_bytes_per_s": 20.0, "latency_s": 0.0},
        "host": {"memory_bytes": 10, "memory_bandwidth_bytes_per_s": 5.0, "flops_per_s": 1.0},
    }


def test_every_number_of_a_packaged_description_says_where_it_comes_from() -> None:
    files = [path for folder in (ACCELERATORS, HOSTS, PAIRS) for path in folder.glob("*.toml")]
    assert len(files) > 30
    for path in files:
        lines = path.read_text("utf-8").splitlines()
        numbers = [line for line in lines if "=" in line and '"' not in line.split("#")[0]]
        assert numbers, path
        assert all(line.partition("#")[2].strip() for line in numbers), (path, numbers)


def test_every_accelerator_goes_into_its_usual_host() -> None:
    cards = "t4 a10 a10g a4000 v100 a100-40 a100-80 l4 l40s rtx3090 rtx4090 rtx5090 h100 h200"
    assert set(cards.split()) <= set(known_accelerators())
    for name in known_accelerators():
        spec, card = load_hardware(name), load_accelerator(name)
        assert card.host in known_hosts()
        assert spec == pair_hardware(name, card.host)
        assert spec.accelerator.memory_bytes >= 16 * 10**9
        assert set(spec.accelerator.flops_per_s) == set(DType)


def test_hosts_reach_less_than_their_memory_channels_give() -> None:
    for name in known_hosts():
        host = load_host(name).host
        assert host.cores is not None
        assert host.peak_memory_bandwidth_bytes_per_s is not None
        share = host.memory_bandwidth_bytes_per_s / host.peak_memory_bandwidth_bytes_per_s
        assert 0.1 < share < 0.8


def test_a_fast_card_in_a_slow_slot_has_the_slot_s_link() -> None:
    slow = pair_hardware("h100", "g4dn.4xlarge").link
    assert slow.h2d_bytes_per_s == load_host("g4dn.4xlarge").slot_bytes_per_s
    assert pair_hardware("t4", "neo-hgx").link == load_accelerator("t4").link


@pytest.mark.parametrize(
    ("accelerator", "host", "message"),
    [
        ("rtx4900", None, r"unknown accelerator 'rtx4900'; nearest: rtx4090"),
        ("A 10 G", "g5.4xlrge", r"nearest: a10g"),
        ("a10g", "g5.4xlrge", r"unknown host 'g5.4xlrge'; nearest: g5.4xlarge"),
        ("zzzzzz", None, r"unknown accelerator 'zzzzzz'; known: a10"),
    ],
)
def test_an_unknown_part_gets_the_nearest_names(
    accelerator: str, host: str | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        pair_hardware(accelerator, host)


@pytest.mark.parametrize(
    ("name", "least_gib", "most_gib"),
    [("rtx4090", 23.9, 24.0), ("a4000", 15.9, 16.0), ("h100", 79.5, 79.7), ("h200", 140, 141)],
)
def test_memory_is_what_the_driver_reports(name: str, least_gib: float, most_gib: float) -> None:
    assert least_gib <= load_accelerator(name).accelerator.memory_bytes / 2**30 <= most_gib


def test_an_a100_s_usual_host_has_slow_slots_and_is_all_for_one() -> None:
    found = pair_hardware("a100-40")
    assert found.link.h2d_bytes_per_s < 15.75e9  # PCIe 3.0 x16
    assert "for one of its eight GPUs" in found.name


def test_the_scaled_a10g_is_scaled_from_a_known_pair() -> None:
    assert load_hardware("a10g-scaled").scaled_from in known_hardware()


def test_a_path_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text((PAIRS / "a10g-scaled.toml").read_text("utf-8"), "utf-8")
    assert load_hardware(str(path)) == load_hardware("small")  # by its former name


def test_a_copy_of_a_packaged_accelerator_is_read(tmp_path: Path) -> None:
    copy = tmp_path / "my.toml"
    copy.write_text((ACCELERATORS / "rtx4090.toml").read_text("utf-8"), "utf-8")
    assert load_hardware(str(copy)) == load_hardware("rtx4090")


@pytest.mark.parametrize(
    ("accelerator", "host", "message"),
    [
        ("t4", PAIRS / "a10g-scaled.toml", "an accelerator with its host: .*, without a host"),
        ("t4", ACCELERATORS / "t4.toml", "an accelerator: name it as the accelerator"),
        (HOSTS / "workstation.toml", "workstation", "a host: name an accelerator"),
        (PAIRS / "a10g-scaled.toml", "workstation", "with its host: name it alone, without a host"),
    ],
)
def test_a_file_named_for_another_part_says_what_it_describes(
    accelerator: Path | str, host: Path | str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        pair_hardware(str(accelerator), str(host))


def test_a_host_alone_is_no_pair() -> None:
    with pytest.raises(ConfigError, match=r"describes a host: name an accelerator"):
        load_hardware(str(HOSTS / "workstation.toml"))


def test_names_may_be_in_any_case() -> None:
    assert load_accelerator("A10G") == load_accelerator("a10g")
    assert load_host("G5.4XLarge") == load_host("g5.4xlarge")
    assert load_hardware("T4-Scaled") == load_hardware("t4-scaled")
    assert load_hardware("RTX4090") == pair_hardware("Rtx4090", "Desktop-DDR5")


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no hardware description 'h9'.*a10g.*a10g-scaled"):
        load_hardware("h9")


def test_damaged_toml_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("name = ", "utf-8")
    with pytest.raises(ConfigError, match=r"bad\.toml is not TOML"):
        load_hardware(str(path))


def test_a_number_of_thousands_of_digits_is_named(tmp_path: Path) -> None:
    path = tmp_path / "long.toml"
    path.write_text("slot_bytes_per_s = " + "9" * 5000, "utf-8")
    with pytest.raises(ConfigError, match=r"long\.toml is not TOML"):
        load_host(str(path))


@pytest.mark.parametrize(
    ("section", "field", "value", "message"),
    [
        ("accelerator", "memory_bytes", None, "accelerator.memory_bytes is missing"),
        ("link", "latency_s", -1.0, r"link.latency_s must be at least 0, not -1"),
        ("host", "flops_per_s", 0, "host.flops_per_s must be above 0"),
        ("accelerator", "memory_efficiency", 1.5, "memory_efficiency is a share"),
        ("accelerator", "cores", 4, "accelerator.cores is no known field"),
        ("link", "h2d_bytes_per_s", "fast", "h2d_bytes_per_s must be a number"),
        ("link", "h2d_bytes_per_s", float("nan"), "h2d_bytes_per_s must be a number"),
        ("host", "flops_per_s", True, "flops_per_s must be a number"),
        ("accelerator", "flops_per_s", {"float32": 1.0}, "flops_per_s.float16 is missing"),
        ("accelerator", "flops_per_s", 3.0, "flops_per_s must be a table"),
        ("link", "h2d_bytes_per_s", float("inf"), "h2d_bytes_per_s must be a number"),
        ("link", "h2d_bytes_per_s", 10**400, "h2d_bytes_per_s must be a number, not 1000"),
        ("link", "h2d_bytes_per_s", 1e300, r"h2d_bytes_per_s must be from 1 to 1e\+18, not 1e"),
        ("link", "h2d_bytes_per_s", 1e-320, r"h2d_bytes_per_s must be from 1 to 1e\+18, not 1e"),
        ("link", "latency_s", 1e9, "link.latency_s must be from 0 to 3600"),
        ("host", "memory_bytes", 10**30, r"host.memory_bytes must be from 1 to 1e\+18"),
        ("accelerator", "compute_efficiency", 1e-320, "compute_efficiency must be from 0.001 to 1"),
        (
            "accelerator",
            "flops_per_s",
            {"float32": 1e30, "float16": 1.0, "bfloat16": 1.0},
            r"accelerator.flops_per_s.float32 must be from 1 to 1e\+21",
        ),
        ("host", "cores", 2.5, "host.cores must be a whole number, not 2.5"),
        ("host", "cores", 0.5, "host.cores must be from 1 to"),
        (
            "host",
            "peak_memory_bandwidth_bytes_per_s",
            4.0,
            "what is reached and cannot exceed peak_memory_bandwidth_bytes_per_s: 5 > 4",
        ),
    ],
)
def test_a_wrong_field_is_named(section: str, field: str, value: object, message: str) -> None:
    values = table()
    if value is None:
        del values[section][field]
    else:
        values[section][field] = value
    with pytest.raises(ConfigError, match=message):
        parse_hardware(values, "x.toml")


def test_extra_section_and_empty_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="disk is no known field"):
        parse_hardware({**table(), "disk": {}}, "x.toml")
    with pytest.raises(ConfigError, match="name must be a non-empty string"):
        parse_hardware({**table(), "name": ""}, "x.toml")
    assert parse_hardware(table(), "x.toml").accelerator.flops_per_s[DType.BFLOAT16] == 30
