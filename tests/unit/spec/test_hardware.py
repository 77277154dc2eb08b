from pathlib import Path
from typing import Any

import pytest

from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.hardware_file import PACKAGED, known_hardware, load_hardware, parse_hardware


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


def test_every_packaged_description_loads_and_explains_each_number() -> None:
    assert {"a10g", "t4", "rtx4090", "small"} <= set(known_hardware())
    for name in known_hardware():
        spec = load_hardware(name)
        assert spec.accelerator.memory_bytes > 2**30
        assert set(spec.accelerator.flops_per_s) == set(DType)
        lines = (PACKAGED / f"{name}.toml").read_text("utf-8").splitlines()
        numbers = [line for line in lines if "=" in line and '"' not in line.split("#")[0]]
        assert all("#" in line for line in numbers), numbers


def test_small_is_scaled_from_a_known_pair() -> None:
    assert load_hardware("small").scaled_from in known_hardware()


def test_a_path_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text((PACKAGED / "t4.toml").read_text("utf-8"), "utf-8")
    assert load_hardware(str(path)) == load_hardware("t4")


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"no hardware description 'h9'.*a10g.*small"):
        load_hardware("h9")


def test_damaged_toml_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("name = ", "utf-8")
    with pytest.raises(ConfigError, match=r"bad\.toml is not TOML"):
        load_hardware(str(path))


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
