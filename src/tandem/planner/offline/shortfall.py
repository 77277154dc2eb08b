"""What is missing where an offline question has no plan."""

from dataclasses import replace

from tandem.planner.offline.candidate import BlockCandidate
from tandem.planner.offline.footprint import BlockFootprint
from tandem.planner.offline.policies import OfflinePolicy
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.question import Question
from tandem.planner.shortfall import NAME_A_DISK, reading
from tandem.spec.errors import ConfigError
from tandem.spec.units import MIB, format_size


def nothing_fits(search: OfflineSearch, policy: OfflinePolicy) -> ConfigError:
    """What the smallest block would take, as much as may be on the host; or what of the host's
    memory would have to be pinned, where that bound alone is in the way.
    """
    question, footprint = search.question, search.footprint
    if question.pinned_bytes is not None:
        least_pinned = _least_pinned(question, policy)
        if least_pinned is not None:
            return _too_little_pinned(question.pinned_bytes, least_pinned, policy)
    layers = question.model.num_layers
    attends = policy.attends and not policy.streams
    host = 0 if not (policy.streams or policy.attends) else 1
    batches = 1 if "rows" in policy.orders else 2
    streamed = 0 if attends else host
    least = BlockCandidate(batches, layers, 1 - host, streamed, host - streamed)
    if footprint.reads:
        least = replace(least, on_disk=layers)
    device, there = _least_bytes(footprint, least)
    disk = ""
    if not footprint.reads:
        with_disk = OfflineSearch(reading(question)).footprint
        fits = _least_bytes(with_disk, replace(least, on_disk=layers))
        if fits[0] <= question.device_bytes and fits[1] <= question.host_bytes:
            disk = f"give {NAME_A_DISK}, "
    one = "one takes" if batches == 1 else "one in each of two batches take"
    read = ", from disk" if footprint.reads else ""
    return ConfigError(
        f"no block of requests fits{_under(policy)}: with all layers streamed{read}, {one} "
        f"{format_size(device)} on the accelerator, which may give "
        f"{format_size(question.device_bytes)}, and {format_size(there)} on the host, which may "
        f"give {format_size(question.host_bytes)}; {disk}raise --gpu-memory or "
        "--cpu-memory, lower --max-num-batched-tokens, or shorten --prompt or --generate",
        param="model",
    )


def _least_bytes(footprint: BlockFootprint, least: BlockCandidate) -> tuple[int, int]:
    """On the accelerator, and on the host."""
    device = footprint.device(least, prompts_on_host=True).total
    return device, footprint.host(least, prompts_on_host=True).total


def _under(policy: OfflinePolicy) -> str:
    return "" if policy.name == "auto" else f" under policy '{policy.name}'"


def _least_pinned(question: Question, policy: OfflinePolicy) -> int | None:
    """Bytes of the host's memory that the candidate which pins least must have pinned; None: even
    with any pinned, none fits.
    """
    search = OfflineSearch(replace(question, pinned_bytes=None))
    candidates, footprint = search.candidates, search.footprint
    sizes: set[int] = set()
    for found in candidates.of(policy):
        read = replace(found, on_disk=found.streamed, lent=0, columns=0, attention_maps=False)
        for each in (found, read) if footprint.reads else (found,):
            if each is found or candidates.possible(each, policy):
                away = footprint.prompts_on_host(each)
                sizes.add(footprint.host(each, prompts_on_host=away).pinned)
    return min(sizes, default=None)


def _too_little_pinned(bound: int, least: int, policy: OfflinePolicy) -> ConfigError:
    return ConfigError(
        f"no block of requests fits{_under(policy)}: at least {format_size(least)} of the host's "
        f"memory must be pinned for what crosses the link, of which {format_size(bound)} may be; "
        f"raise --pinned-memory to {-(-least // MIB)}MiB",
        param="pinned_memory",
    )
