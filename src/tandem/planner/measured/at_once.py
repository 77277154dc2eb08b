"""What virtual time makes of a profile's things that share, to be compared with what was measured
of all at once.
"""

from collections.abc import Mapping

from tandem.planner.fluid.groups import Group, Schedule
from tandem.planner.fluid.queues import CPU, D2H, DISK, H2D, FluidQueues, Submission, Work
from tandem.profiling.hardware import link_facts
from tandem.profiling.measurements import SharedThing
from tandem.profiling.profile import Profile
from tandem.profiling.shared_link import APART, both_ways
from tandem.profiling.shared_memory import shared_memory

_QUEUES: Mapping[SharedThing, tuple[int, ...]] = {
    "attention": (CPU,),
    "link both ways": (H2D, D2H),
    "disks": (DISK,),
}
_LONG_S = 1e6
"""Of what goes on throughout."""


def predicted_bytes_per_s(profile: Profile) -> Mapping[SharedThing, float]:
    """Of all that was measured at once: rates together, from those alone, and from what two at a
    time take from each other.
    """
    rates = _rates(profile)
    pool, both = shared_memory(profile.host).bytes_per_s, APART
    if profile.accelerator is not None:
        both = both_ways(profile.accelerator)
    return {each.thing: _rate(profile, rates, each.thing, pool, both) for each in profile.at_once}


def _rates(profile: Profile) -> dict[int, float]:
    """Bytes per second of each queue alone."""
    found: dict[int, float] = {}
    for each in profile.at_once:
        found.update(dict.fromkeys(_QUEUES[each.thing], each.alone_bytes_per_s))
    if profile.accelerator is not None and H2D in found:
        link = link_facts(profile.accelerator)  # one direction alone, of which each has its own
        found[H2D], found[D2H] = link.h2d_bytes_per_s, link.d2h_bytes_per_s
    return found


def _rate(
    profile: Profile, rates: Mapping[int, float], thing: SharedThing, pool: float, both: float
) -> float:
    """Of one thing that moves so many bytes while the others go on; the link's directions are as
    fast as the later one to end.
    """
    shared, mine = shared_memory(profile.host), _QUEUES[thing]
    charges = {CPU: 1.0, H2D: shared.link_charge, D2H: shared.link_charge, DISK: shared.disk_charge}
    size = max(rates[queue] for queue in mine)  # about a second's
    queues, left = FluidQueues(pool, both_ways=both), len(mine)
    for queue, rate in rates.items():
        alone_s = size / rate if queue in mine else _LONG_S
        work = Work(alone_s, charges[queue] * rate, float(queue in (H2D, D2H)))
        schedule = Schedule((), (Group(queue, 1, ((0, 1),), ()),))
        queues.submit(Submission(schedule, lambda _, work=work: [work], label=queue in mine))
    while left:
        left -= sum(ended.submission.label is True for ended in queues.advance())
    return size / queues.now_s
