"""Sizes and durations as people write them."""

import math
import re

from tandem.spec.errors import ConfigError, shown

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40

_FACTORS = {
    "": 1, "b": 1,
    "k": KIB, "kib": KIB, "kb": 1000,
    "m": MIB, "mib": MIB, "mb": 1000**2,
    "g": GIB, "gib": GIB, "gb": 1000**3,
    "t": TIB, "tib": TIB, "tb": 1000**4,
}  # fmt: skip
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_MAX_DIGITS = 18  # int() refuses more than 4300, and nothing that is counted here has as many


def is_count(text: str) -> bool:
    """Whether it is a whole number that int() takes: digits such as `²` are none."""
    return text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS


def parse_size(text: str, *, param: str | None = None) -> int:
    """Bytes meant by `12GiB`, `1.5g`, `800 MB` or `1048576`.

    Raises:
        ConfigError: not a size.
    """
    return _parse_size(text, param, "12GiB, 800MiB or 1048576")


def _parse_size(text: str, param: str | None, examples: str) -> int:
    match = _SIZE.fullmatch(text)
    factor = _FACTORS.get(match.group(2).lower()) if match else None
    size = _product(match, factor)
    if size is None:
        raise ConfigError(
            f"{shown(text)} {_fault(text, 'a size')}{_of(param)}; write for example {examples}",
            param=param,
        )
    return int(size)


def _fault(text: str, meant: str, *, needs_unit: bool = False) -> str:
    """What is wrong with it, as far as it can be told."""
    if re.match(r"\s*-\s*\d", text):
        return "is below 0"
    number = _SIZE.fullmatch(text)
    if needs_unit and number and not number.group(2) and _product(number, 1) is not None:
        return "has no unit"
    return f"is not {meant}"


def _product(match: re.Match[str] | None, factor: float | None) -> float | None:
    """None: not written as a number and a unit, or too large to be one."""
    if match is None or factor is None:
        return None
    product = float(match.group(1)) * factor
    return product if math.isfinite(product) else None


def _of(param: str | None) -> str:
    return "" if param is None else f" (--{param.replace('_', '-')})"


def parse_limit(text: str, *, param: str | None = None) -> int:
    """`parse_size` of the largest thing that is let through.

    Raises:
        ConfigError: not a size, or nothing would be let through.
    """
    size = parse_size(text, param=param)
    if size < 1:
        raise ConfigError(
            f"'{text}' lets nothing through{_of(param)}; write for example 32MiB", param=param
        )
    return size


def parse_size_with_unit(
    text: str, *, param: str | None = None, allows_nothing: bool = False
) -> int:
    """`parse_size` for people who may mean GiB: a bare number is refused.

    Raises:
        ConfigError: not a size, no unit, or nothing at all, unless that is allowed.
    """
    size = _parse_size(text, param, "12GiB or 800MiB")
    if text.strip()[-1].isdigit():
        raise ConfigError(
            f"'{text}' has no unit{_of(param)}; write for example {text.strip()}GiB", param=param
        )
    if size == 0 and not allows_nothing:
        raise ConfigError(
            f"'{text}' is no memory at all{_of(param)}; write for example 12GiB", param=param
        )
    return size


def parse_rate_bytes_per_s(text: str, *, param: str | None = None) -> float:
    """Bytes per second meant by `3.5GB/s` or `900MiB/s`.

    Raises:
        ConfigError: not a rate, or less than a byte per second.
    """
    size, _, second = text.strip().rpartition("/")
    match = _SIZE.fullmatch(size) if second == "s" else None
    factor = _FACTORS.get(match.group(2).lower()) if match and match.group(2) else None
    rate = _product(match, factor)
    if rate is None or rate < 1:  # a byte per second: less is a slip, and times overflow
        raise ConfigError(
            f"{shown(text)} {_fault(text, 'a rate', needs_unit=True)}{_of(param)}; "
            "write for example 3.5GB/s",
            param=param,
        )
    return rate


def parse_duration_s(text: str, *, param: str | None = None) -> float:
    """Seconds meant by `100ms`, `0.5s` or `2min`.

    Raises:
        ConfigError: not a duration, no unit, or zero.
    """
    match = _SIZE.fullmatch(text)
    factor = _SECONDS.get(match.group(2)) if match else None
    seconds = _product(match, factor)
    if not seconds:
        raise ConfigError(
            f"{shown(text)} {_fault(text, 'a duration', needs_unit=True)}{_of(param)}; "
            "write for example 100ms or 0.5s",
            param=param,
        )
    return seconds


def format_figure(value: float) -> str:
    """Three digits, as people write them: `0.05` -> `0.05`, `6962.4` -> `6,960`."""
    figure = float(f"{value:.3g}")
    return f"{figure:,.0f}" if abs(figure) >= 1000 else f"{figure:.3g}"


def format_duration(seconds: float) -> str:
    """`0.0052` -> `5.2 ms`; `4000` -> `1 h 07 min`."""
    if float(f"{seconds:.3g}") < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours < 48 else f"{hours / 24:.1f} days"


def duration_to_allow(seconds: float) -> str:
    """The shortest in three digits that is no shorter, as flags take it: `0.03051` -> `30.6ms`."""
    unit = "s" if seconds >= 1 else "ms"
    value = seconds / _SECONDS[unit]
    digits = 2 - math.floor(math.log10(value))
    steps = math.floor(value * 10.0**digits)
    while True:
        text = f"{steps / 10.0**digits:.{max(0, digits)}f}{unit}"
        if parse_duration_s(text) >= seconds:
            return text
        steps += 1


def format_size(size_bytes: int | float) -> str:
    """`1536` -> `1.5 KiB`; exact bytes below one KiB."""
    size = float(size_bytes)
    if abs(size) < KIB:
        return f"{int(size)} B"
    for unit in ("KiB", "MiB", "GiB"):
        size /= KIB
        if abs(size) < KIB:
            return f"{size:.1f} {unit}"
    return f"{size / KIB:.1f} TiB"
