"""One more job, of which the copies over the link are timed."""

from collections.abc import Callable

from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.jobs import JobRate
from benchmarks.gpu.link_meter import LinkMeter, link_rows
from benchmarks.gpu.opened import Opened
from benchmarks.gpu.stored import stored_profile

from tandem.plan.program import Queue
from tandem.profiling.profile import Profile
from tandem.spec.errors import ConfigError


def meter_link(
    case: str,
    name: str,
    run: Callable[[], JobRate],
    engine: Opened,
    meter: LinkMeter,
    longest_s: float,
    limit: Deadline,
    found: Findings,
) -> None:
    """If there is time for one more job, copies over the link in it."""
    if limit.left_s < longest_s:
        found.note(f"{case}: {name}: no time was left for copies over the link")
        return
    try:
        probed = _both_ways(stored_profile())
    except ConfigError as error:
        found.note(f"copies over the link have no bound: {error}")
        return
    with meter.metering():
        run()
    found.add(*link_rows(case, name, meter.copies(engine.parts), probed))


def _both_ways(profile: Profile) -> dict[Queue, float]:
    """The link's bytes per second, each way while the other copies, too.

    Raises:
        ConfigError: the profile knows of no link.
    """
    card = profile.accelerator
    if card is None:
        raise ConfigError("the profile has no accelerator; remove its record to measure it again")
    return {Queue.H2D: card.h2d.both_bytes_per_s, Queue.D2H: card.d2h.both_bytes_per_s}
