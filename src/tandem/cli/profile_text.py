"""A profile as text: what each thing reaches."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tandem.planner.measured.at_once import predicted_bytes_per_s
from tandem.profiling.measurements import (
    AcceleratorMeasurements,
    AttentionTimes,
    CodeRates,
    DiskMeasurements,
    HostMeasurements,
    LinearTimes,
    LinkDirection,
    PromptTimes,
    Striping,
    ThreadRates,
)
from tandem.profiling.profile import Profile
from tandem.profiling.surface import Surface
from tandem.spec.units import format_duration

_GIGA, _MICRO = 1e9, 1e-6
_MILLION, _TERA = 1e6, 1e12


def profile_text(profile: Profile, path: Path) -> Iterator[str]:
    """The lines to print."""
    machine = profile.machine
    how = "thorough" if profile.thorough else "coarse"
    yield f"{machine.cpu}, {machine.threads} threads on cores {_list(machine.cores)}"
    yield f"measured {profile.measured_at}, {how}, in {format_duration(profile.duration_s)}"
    yield ""
    yield from _host(profile.host)
    if profile.accelerator is not None:
        yield ""
        yield from _accelerator(profile.accelerator)
    if profile.disks:
        yield ""
        yield from _disks(profile.disks, profile.striping)
    if profile.at_once:
        yield ""
        yield from _at_once(profile)
    yield ""
    yield from (f"not measured: {line}" for line in profile.skipped)
    if profile.hurried:
        yield (
            "measured in one round each, as the time ran short (others kept the processor busy?): "
            f"{', '.join(profile.hurried)}"
        )
    yield f"stored in {path}"


def _host(host: HostMeasurements) -> Iterator[str]:
    memory = host.memory
    yield _line(
        "memory, GB/s",
        f"read {_giga(memory.read_bytes_per_s)}  write {_giga(memory.write_bytes_per_s)}  copy "
        f"{_giga(memory.copy_bytes_per_s)}",
    )
    for point in host.sweep:
        yield _line(f"{point.threads} threads, GB/s", _threads(point.alone))
        if point.beside_link is not None:
            yield _line("  the link busy", _threads(point.beside_link))
    yield from _linear(host.linear)
    yield from _attention(host.attention)
    yield from _codes(host.codes, "float32")
    yield _line(
        "start of the threads, us",
        f"spinning {host.start.spinning_s / _MICRO:.3g}  asleep {host.start.asleep_s / _MICRO:.3g}",
    )
    for each in host.contention:
        yield _line(each.work, f"beside {each.load}")
        yield _line(
            "  alone, together, G/s",
            f"{_giga(each.work_alone_per_s)}, {_giga(each.work_beside_per_s)}  the other "
            f"{_giga(each.load_alone_bytes_per_s)}, {_giga(each.load_beside_bytes_per_s)} bytes",
        )


def _threads(rates: ThreadRates) -> str:
    return (
        f"read {_giga(rates.read_bytes_per_s)}  attention {_giga(rates.attention_bytes_per_s)}  "
        f"one row {_giga(rates.linear_bytes_per_s)}"
    )


def _linear(linear: Sequence[LinearTimes]) -> Iterator[str]:
    """GFLOP/s over the largest weight, whose fixed costs count least."""
    for times in linear:
        surface, elements = times.surface, times.surface.first[-1]
        rates = (
            f"{rows:.0f}: {2 * elements * rows / seconds / _GIGA:.3g}"
            for rows, seconds in zip(surface.second, surface.seconds[-1], strict=True)
        )
        yield _line(f"linear {times.kind}, GFLOP/s", f"rows {'  '.join(rates)}")


def _attention(measured: Sequence[AttentionTimes]) -> Iterator[str]:
    for times in measured:
        yield _line(
            f"attention {times.kind}", f"million keys/s, context {_sizes(times.surface.second)}"
        )
        yield from _table("rows", times.surface, lambda rows, context: rows * context / _MILLION)


def _prompts(measured: Sequence[PromptTimes]) -> Iterator[str]:
    """Each token sees itself and those before it."""
    for times in measured:
        yield _line(
            f"prompts' attention {times.kind}", f"TFLOP/s, tokens {_sizes(times.surface.second)}"
        )
        pair = times.pair_flops / 2 / _TERA
        yield from _table(
            "prompts", times.surface, lambda prompts, n, pair=pair: prompts * n * (n + 1) * pair
        )


def _table(what: str, surface: Surface, amount: Callable[[float, float], float]) -> Iterator[str]:
    """Rates by the second size, a line for each of the first."""
    for first, row in zip(surface.first, surface.seconds, strict=True):
        rates = (
            f"{amount(first, second) / seconds:.3g}"
            for second, seconds in zip(surface.second, row, strict=True)
        )
        yield _line(f"  {what} {first:.0f}", "  ".join(rates))


def _codes(measured: Sequence[CodeRates], plain: str) -> Iterator[str]:
    for codes in measured:
        what = codes.kind if codes.kind.startswith("kv ") else f"weights {codes.kind}"
        yield _line(
            f"{what}, GB/s",
            f"quantize {_giga(codes.quantize_bytes_per_s)}  dequantize "
            f"{_giga(codes.dequantize_bytes_per_s)} (of {plain})",
        )


def _accelerator(measured: AcceleratorMeasurements) -> Iterator[str]:
    yield measured.name
    yield _line("memory, GB/s", f"copy, read and written {_giga(measured.copy_bytes_per_s)}")
    yield _line(
        "launches, us",
        f"to a known end {measured.launch_s / _MICRO:.3g}  one after another "
        f"{measured.kernel_s / _MICRO:.3g}",
    )
    yield from _linear(measured.linear)
    yield from _attention(measured.attention)
    yield from _prompts(measured.prompts)
    yield from _codes(measured.codes, "16 bits")
    yield from _direction("host to accelerator", measured.h2d)
    yield from _direction("accelerator to host", measured.d2h)


def _direction(name: str, direction: LinkDirection) -> Iterator[str]:
    for kind, curve in (("pinned", direction.pinned), ("pageable", direction.pageable)):
        rates = (
            f"{size / 1024:.0f} KiB: {_giga(size / seconds)}"
            for size, seconds in zip(curve.sizes, curve.seconds, strict=True)
        )
        yield _line(f"{name}, GB/s", f"{kind}  {'  '.join(rates)}")
    yield _line("  both ways at once", _giga(direction.both_bytes_per_s))


def _disks(disks: Sequence[DiskMeasurements], striping: Striping | None) -> Iterator[str]:
    for disk in disks:
        together = f"  all disks at once {_giga(disk.together_bytes_per_s)}"
        yield _line(
            f"disk {disk.folder}, GB/s",
            f"one reader {_giga(disk.one_reader_bytes_per_s)}  {disk.way} "
            f"{_giga(disk.bytes_per_s)}{together if len(disks) > 1 else ''}",
        )
    if striping is not None:
        shares = "  ".join(f"{share:.0%}" for share in striping.shares)
        yield _line(
            "  in shares, GB/s", f"{_giga(striping.bytes_per_s)} beside attention, by {shares}"
        )


def _at_once(profile: Profile) -> Iterator[str]:
    """What was measured, beside what plans make of it."""
    predicted = predicted_bytes_per_s(profile)
    yield "all at once, GB/s"
    for each in profile.at_once:
        error = predicted[each.thing] / each.together_bytes_per_s - 1
        yield _line(
            f"  {each.thing}",
            f"alone {_giga(each.alone_bytes_per_s)}  together {_giga(each.together_bytes_per_s)}  "
            f"as plans predict {_giga(predicted[each.thing])} ({error:+.0%})",
        )


def _line(name: str, what: str) -> str:
    return f"{name:<28}{what}"


def _giga(rate: float) -> str:
    return f"{rate / _GIGA:.3g}"


def _sizes(numbers: Sequence[float]) -> str:
    return _list(tuple(round(number) for number in numbers))


def _list(numbers: Sequence[int]) -> str:
    return " ".join(map(str, numbers))
