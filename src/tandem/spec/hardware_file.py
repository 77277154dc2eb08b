"""Read a hardware description: one TOML file, packaged by name or the user's own by path."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, cast

from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import AcceleratorFacts, HardwareSpec, HostFacts, LinkFacts

PACKAGED = Path(__file__).resolve().parents[1] / "assets" / "hardware"
_SHARES = ("memory_efficiency", "compute_efficiency")
_MAY_BE_ZERO = ("launch_latency_s", "kernel_overhead_s", "latency_s")

_Facts = TypeVar("_Facts", AcceleratorFacts, LinkFacts, HostFacts)
_Table = Mapping[str, Any]


def known_hardware() -> tuple[str, ...]:
    """Names of the packaged descriptions."""
    return tuple(sorted(path.stem for path in PACKAGED.glob("*.toml")))


def load_hardware(name: str) -> HardwareSpec:
    """The packaged description called `name`, or the file that `name` is the path of.

    Raises:
        ConfigError: no such name or file, or a field is missing, unknown or out of range.
    """
    packaged = PACKAGED / f"{name}.toml"
    path = packaged if name in known_hardware() else Path(name)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        known = ", ".join(known_hardware())
        raise ConfigError(
            f"no hardware description '{name}'; use one of {known}, or the path of a TOML file",
            param="accelerator",
        ) from None
    try:
        return parse_hardware(tomllib.loads(text), str(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML ({error}); mend it", param="accelerator") from None


def parse_hardware(table: _Table, source: str) -> HardwareSpec:
    """A description from a parsed file.

    Raises:
        ConfigError: a field is missing, unknown or out of range; names it and `source`.
    """
    reader = _Reader(source)
    reader.check_names(table, "", ("name", "accelerator", "link", "host"), ("scaled_from",))
    return HardwareSpec(
        name=reader.text(table, "name"),
        accelerator=reader.facts(table, "accelerator", AcceleratorFacts),
        link=reader.facts(table, "link", LinkFacts),
        host=reader.facts(table, "host", HostFacts),
        scaled_from=reader.text(table, "scaled_from") if "scaled_from" in table else None,
    )


class _Reader:
    """Takes values out of tables; its errors name file and field."""

    def __init__(self, source: str) -> None:
        self._source = source

    def check_names(
        self, table: _Table, where: str, needed: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> None:
        missing = [name for name in needed if name not in table]
        if missing:
            raise self._error(f"{where}{missing[0]} is missing")
        extra = [name for name in table if name not in needed + optional]
        if extra:
            known = ", ".join(needed + optional)
            raise self._error(f"{where}{extra[0]} is no known field (known: {known})")

    def text(self, table: _Table, name: str) -> str:
        value = table[name]
        if not isinstance(value, str) or not value:
            raise self._error(f"{name} must be a non-empty string, not {value!r}")
        return value

    def facts(self, table: _Table, section: str, kind: type[_Facts]) -> _Facts:
        inner = self._table(table, section, "")
        where = f"{section}."
        names = tuple(field.name for field in fields(kind))
        self.check_names(inner, where, names)
        values: dict[str, Any] = {}
        for name in names:
            if name == "flops_per_s" and kind is AcceleratorFacts:
                values[name] = self._flops(self._table(inner, name, where), f"{where}{name}.")
            elif name == "memory_bytes":
                values[name] = int(self._number(inner, name, where))
            else:
                values[name] = self._number(inner, name, where)
        return kind(**values)

    def _flops(self, table: _Table, where: str) -> Mapping[DType, float]:
        self.check_names(table, where, tuple(dtype.value for dtype in DType))
        return {dtype: self._number(table, dtype.value, where) for dtype in DType}

    def _table(self, table: _Table, name: str, where: str) -> _Table:
        value = table[name]
        if not isinstance(value, dict):
            raise self._error(f"{where}{name} must be a table, not {value!r}")
        return cast("_Table", value)

    def _number(self, table: _Table, name: str, where: str) -> float:
        value = table[name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value):
            raise self._error(f"{where}{name} must be a number, not {value!r}")
        if value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
            least = "at least 0" if name in _MAY_BE_ZERO else "above 0"
            raise self._error(f"{where}{name} must be {least}, not {value}")
        if name in _SHARES and value > 1:
            raise self._error(f"{where}{name} is a share of the peak and cannot exceed 1: {value}")
        return float(value)

    def _error(self, what: str) -> ConfigError:
        return ConfigError(f"hardware description {self._source}: {what}", param="accelerator")
