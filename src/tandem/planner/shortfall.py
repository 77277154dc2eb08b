"""What is missing where nothing fits, and the nearest settings that would do, each alone."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from tandem.memory.quantized_page import MAX_HEAD_DIM
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.footprint import Footprint
from tandem.planner.policies import Policy
from tandem.planner.question import Lengths, Question
from tandem.planner.search.candidates import Candidates
from tandem.spec.errors import ConfigError
from tandem.spec.kv_type import CodeType
from tandem.spec.model import ModelSpec
from tandem.spec.quantized_maps import uniform_formats
from tandem.spec.units import MIB, format_size
from tandem.spec.weight_format import WeightFormat

_LEAST_BATCH = 256
_ANY_BYTES_PER_S = 1e9
NAME_A_DISK = "--disk RATE (of the disk to read layers from)"


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Of a question that has no plan.

    Attributes:
        device_bytes, host_bytes: that the accelerator, or else the host, would have to give in all
            for one request to run, the least in whole MiB; None: no size of that memory alone is
            enough.
        reading_bytes: likewise the host, less than without, if it also had a disk to read layers
            from, where that alone is not enough; None: there is one, or it is of no use.
        longest_tokens: of a request, prompt and output, that would fit; None: none does.
        settings: flags that would do, the least change of each.
    """

    device_bytes: int | None
    host_bytes: int | None
    reading_bytes: int | None
    longest_tokens: int | None
    settings: tuple[str, ...]


def find_shortfall(question: Question, policy: Policy) -> Shortfall:
    """By trying: each of the changes alone, as far as it must go; beside a disk, also memory."""

    def fits(changed: Question) -> bool:
        return next(Candidates(changed, Footprint(changed)).of(policy), None) is not None

    footprint = Footprint(question)
    request = footprint.longest_blocks * footprint.block_bytes
    everything = (
        footprint.resident_bytes(Elsewhere())
        + request
        + footprint.workspace("rendezvous", 1, cohorts=(1, 1))
    )
    steps = everything // MIB + 2

    def device(step: int) -> Question:
        return replace(question, device_bytes=_larger(question.device_bytes, step))

    def host(step: int) -> Question:
        return replace(question, host_bytes=_larger(question.host_bytes, step))

    longest = question.lengths.longest_tokens
    more_device = _least(lambda step: fits(device(step)), steps)
    more_host = None if question.host_only else _least(lambda step: fits(host(step)), steps)
    of_host, alone = (device, more_device) if question.host_only else (host, more_host)
    more_reading: int | None = None
    if question.hardware.host.disk_bytes_per_s is None and not fits(reading(question)):
        most = steps if alone is None else alone - 1
        more_reading = _least(lambda step: fits(reading(of_host(step))), most)
    fewer = _least(lambda less: fits(_with_longest(question, longest - less)), longest - 2)
    return Shortfall(
        device_bytes=None if more_device is None else device(more_device).device_bytes,
        host_bytes=None if more_host is None else host(more_host).host_bytes,
        reading_bytes=None if more_reading is None else _larger(_of_host(question), more_reading),
        longest_tokens=None if fewer is None else longest - fewer,
        settings=tuple(_first_of_each(_settings(question), fits)),
    )


def describe_shortfall(question: Question, found: Shortfall) -> str:
    """What would do, as part of a sentence."""
    hardware = question.hardware
    ways = list(found.settings)
    if found.reading_bytes is not None:
        more = found.reading_bytes - _of_host(question)
        ways.append(
            f"{NAME_A_DISK} with --cpu-memory {_value(found.reading_bytes)} "
            f"({format_size(more)} more)"
        )
    device = "--cpu-memory" if question.host_only else "--gpu-memory"
    for flag, needed, given, there in (
        (device, found.device_bytes, question.device_bytes, hardware.accelerator.memory_bytes),
        ("--cpu-memory", found.host_bytes, question.host_bytes, hardware.host.memory_bytes),
    ):  # fmt: skip
        if needed is not None:
            machine = "" if needed <= there else ", of a larger machine"
            more = f"{format_size(needed - given)} more{machine}"
            ways.append(f"{flag} {_value(needed)} ({more})")
    if found.longest_tokens is not None:
        ways.append(f"requests of at most {found.longest_tokens} tokens in and out together")
    if not ways:
        return "use a larger machine or a smaller model"
    return "any of these would do: " + ", ".join(ways)


def reading(question: Question) -> Question:
    """The same with some disk to read layers from."""
    hardware = question.hardware
    host = replace(hardware.host, disk_bytes_per_s=_ANY_BYTES_PER_S)
    return replace(question, hardware=replace(hardware, host=host))


def _of_host(question: Question) -> int:
    """What the host may give."""
    return question.device_bytes if question.host_only else question.host_bytes


def _value(size_bytes: int) -> str:
    """As flags take it, to the byte: sizes that are looked for are whole MiB."""
    return f"{size_bytes // MIB}MiB"


def _larger(size_bytes: int, steps: int) -> int:
    return (size_bytes // MIB + steps) * MIB


def _least(fits: Callable[[int], bool], most: int) -> int | None:
    """The least number from 1 to `most` at which it fits, if it does at `most`."""
    if most < 1 or not fits(most):
        return None
    low, high = 1, most
    while low < high:
        middle = (low + high) // 2
        if fits(middle):
            high = middle
        else:
            low = middle + 1
    return high


def _with_longest(question: Question, longest: int) -> Question:
    """All requests shorter in proportion."""
    lengths = question.lengths
    factor = longest / lengths.longest_tokens
    shorter = Lengths(
        requests=lengths.requests,
        prompt_tokens=lengths.prompt_tokens * factor,
        generated_tokens=lengths.generated_tokens * factor,
        context_tokens=lengths.context_tokens * factor,
        longest_tokens=longest,
        duration_s=lengths.duration_s,
        context_deviation=lengths.context_deviation * factor,
    )
    return replace(question, lengths=shorter)


def _first_of_each(
    settings: Iterable[tuple[str, Question]], fits: Callable[[Question], bool]
) -> Iterator[str]:
    found: set[str] = set()
    for setting, changed in settings:
        flag = setting.split()[0]
        if flag not in found and fits(changed):
            found.add(flag)
            yield setting


def _settings(question: Question) -> Iterator[tuple[str, Question]]:
    """Flags that make something smaller; of one kind, the least change first."""
    if question.hardware.host.disk_bytes_per_s is None:
        yield NAME_A_DISK, reading(question)
    if question.precision.kv not in list(CodeType) and question.model.head_dim <= MAX_HEAD_DIM:
        for kind in CodeType:
            precision = replace(question.precision, kv=kind)
            yield f"--kv-cache-dtype {kind}", replace(question, precision=precision)
    for bits in (8, 4) if not question.precision.quantized else ():
        formats = _uniform(question.model, bits)
        if formats:
            precision = replace(question.precision, quantized=formats)
            yield f"--quantization int{bits}", replace(question, precision=precision)
    tokens = question.max_num_batched_tokens // 2
    while tokens >= _LEAST_BATCH:
        changed = replace(question, max_num_batched_tokens=tokens)
        yield f"--max-num-batched-tokens {tokens}", changed
        tokens //= 2


def _uniform(model: ModelSpec, bits: int) -> dict[str, WeightFormat]:
    """Formats of the layers' maps; none if no group divides their rows."""
    try:
        return uniform_formats(model, bits, None)
    except ConfigError:
        return {}
