"""Takes a hardware description's values out of parsed TOML; errors name file and field."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, TypeVar, cast

from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError, shown
from tandem.spec.hardware import AcceleratorFacts, HostFacts, LinkFacts

_SHARES = ("memory_efficiency", "compute_efficiency")
_MAY_BE_ZERO = ("launch_latency_s", "kernel_overhead_s", "latency_s")
_WHOLE = ("memory_bytes", "cores", "tile_rows", "code_tile_rows")
# By the name's end: what no machine goes beyond. It is a slip of the unit, and sums would overflow.
_RANGES = {
    "_efficiency": (1e-3, 1.0),
    "_per_s": (1.0, 1e18),
    "_bytes": (1.0, 1e18),
    "_s": (0.0, 3600.0),
    "cores": (1.0, 1e6),
    "compute_capability": (1.0, 99.0),
    "tile_rows": (1.0, 1024.0),  # also of codes
    "_share": (1e-6, 1e3),  # stand-ins' kernels have been measured below a thousandth of a copy
}
_FLOPS = (1.0, 1e21)

_Facts = TypeVar("_Facts", AcceleratorFacts, LinkFacts, HostFacts)
Table = Mapping[str, Any]


class HardwareReader:
    """Reads the tables of one file.

    Args:
        source: the file, for messages.
        param: the parameter that named it.
    """

    def __init__(self, source: str, param: str = "accelerator") -> None:
        self._source, self._param = source, param

    def check_names(
        self, table: Table, where: str, needed: tuple[str, ...], optional: tuple[str, ...] = ()
    ) -> None:
        """Refuse a table that lacks a field or has an unknown one."""
        missing = [name for name in needed if name not in table]
        if missing:
            raise self._error(f"{where}{missing[0]} is missing")
        extra = [name for name in table if name not in needed + optional]
        if extra:
            known = ", ".join(needed + optional)
            raise self._error(f"{where}{extra[0]} is no known field (known: {known})")

    def text(self, table: Table, name: str) -> str:
        """A string that says something."""
        value = table[name]
        if not isinstance(value, str) or not value:
            raise self._error(f"{name} must be a non-empty string, not {value!r}")
        return value

    def texts(self, table: Table, name: str) -> tuple[str, ...]:
        """A list of strings that each say something."""
        values = table[name]
        if not isinstance(values, list) or not values:
            raise self._error(f"{name} must be a list of names, not {values!r}")
        listed = cast("list[Any]", values)
        return tuple(self.text({name: value}, name) for value in listed)

    def facts(self, table: Table, section: str, kind: type[_Facts]) -> _Facts:
        """The fields of `kind` from a section; those with a default may be absent."""
        inner = self._table(table, section, "")
        where = f"{section}."
        optional = tuple(field.name for field in fields(kind) if field.default is not MISSING)
        needed = tuple(field.name for field in fields(kind) if field.default is MISSING)
        self.check_names(inner, where, needed, optional)
        values: dict[str, Any] = {}
        for name in filter(inner.__contains__, needed + optional):
            if name == "flops_per_s" and kind is AcceleratorFacts:
                values[name] = self._flops(self._table(inner, name, where), f"{where}{name}.")
            elif name in _WHOLE:
                values[name] = self._whole(inner, name, where)
            else:
                values[name] = self.number(inner, name, where)
        if kind is HostFacts:
            self._check_peak(values, where)
        return kind(**values)

    def number(self, table: Table, name: str, where: str = "") -> float:
        """A finite number in its field's range."""
        value = table[name]
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not _is_finite(value):
            raise self._error(f"{where}{name} must be a number, not {shown(value)}")
        if value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
            least = "at least 0" if name in _MAY_BE_ZERO else "above 0"
            raise self._error(f"{where}{name} must be {least}, not {shown(value)}")
        if name in _SHARES and value > 1:
            raise self._error(
                f"{where}{name} is a share of the peak and cannot exceed 1: {shown(value)}"
            )
        least, most = _range(name)
        if not least <= value <= most:
            raise self._error(
                f"{where}{name} must be from {least:g} to {most:g}, not {shown(value)}"
            )
        return float(value)

    def _whole(self, table: Table, name: str, where: str) -> int:
        value = self.number(table, name, where)
        if not value.is_integer():
            raise self._error(f"{where}{name} must be a whole number, not {value}")
        return int(value)

    def _check_peak(self, host: Table, where: str) -> None:
        """Refuse a host whose cores read more than its memory's channels give."""
        name = "memory_bandwidth_bytes_per_s"
        reached, peak = host[name], host.get(f"peak_{name}")
        if peak is not None and reached > peak:
            raise self._error(
                f"{where}{name} is what is reached and cannot exceed peak_{name}: "
                f"{reached:g} > {peak:g}"
            )

    def _flops(self, table: Table, where: str) -> Mapping[DType, float]:
        self.check_names(table, where, tuple(dtype.value for dtype in DType))
        return {dtype: self.number(table, dtype.value, where) for dtype in DType}

    def _table(self, table: Table, name: str, where: str) -> Table:
        value = table[name]
        if not isinstance(value, dict):
            raise self._error(f"{where}{name} must be a table, not {value!r}")
        return cast("Table", value)

    def _error(self, what: str) -> ConfigError:
        return ConfigError(f"hardware description {self._source}: {what}", param=self._param)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer of more than 308 digits
        return False


def _range(name: str) -> tuple[float, float]:
    return next((range_ for end, range_ in _RANGES.items() if name.endswith(end)), _FLOPS)
