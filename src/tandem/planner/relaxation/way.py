"""Ways to run that are bounded one by one; each covers all placements of its kind."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tandem.plan.weights import ON_DISK, SLOTTED
from tandem.planner.candidate import COHORT_STRATEGIES, Strategy, numbers_of_passes
from tandem.planner.elsewhere import CPU_HOMES
from tandem.planner.footprint import Footprint
from tandem.planner.policies import Policy
from tandem.planner.question import Question
from tandem.planner.relaxation.homes import (
    EXPERTS_STREAMED,
    MLPS_STREAMED,
    SHARED,
    THROUGH_SLOTS,
    LayerHome,
)

_SHARED_WAYS: tuple[tuple[LayerHome, ...], ...] = (
    ("experts", "experts-cpu"),
    ("experts", *EXPERTS_STREAMED),
)


class Way(NamedTuple):
    """What is decided before shares are.

    Attributes:
        homes: that layers may have.
        all_on_host: no KV lies on the accelerator. all_streamed: all layers come to it anew.
        alone: every row is in a cohort, and a sweep that reads no prompt is one layer of it, or its
            own passes.
        passes: of its own, that a cohort has in a sweep.
        reads_here: prompts of requests on the host are read on the accelerator. reads_anywhere:
            there or on the host, whichever takes less: what stands for both.
    """

    strategy: Strategy
    homes: tuple[LayerHome, ...]
    all_on_host: bool = False
    all_streamed: bool = False
    alone: bool = False
    passes: int = 0
    reads_here: bool = False
    reads_anywhere: bool = False

    @property
    def streams(self) -> bool:
        """Whether layers, or their MLPs, go through slots: more than there are slots, or they would
        stay there.
        """
        return any(home in THROUGH_SLOTS for home in self.homes)

    @property
    def streams_mlps(self) -> bool:
        """Whether it is MLPs alone: slots are as large as what comes."""
        return any(home in MLPS_STREAMED for home in self.homes)

    @property
    def shares_mixtures(self) -> bool:
        """Whether of every mixture some experts are resident, and not all."""
        return any(home in SHARED for home in self.homes)

    @property
    def reads(self) -> bool:
        """Whether layers may be read from disk, through slots in the host's memory."""
        return any(home in ON_DISK for home in self.homes)

    @property
    def halves(self) -> bool:
        """Whether all rows are in two cohorts that both take part in every sweep."""
        return self.strategy == "symmetric"

    @property
    def splits_kv(self) -> bool:
        """Whether rows that pass through all layers may have their KV in either tier."""
        return self.strategy == "ride-along"

    @property
    def ahead(self) -> bool:
        """Whether two cohorts join every sweep."""
        return self.strategy == "rendezvous-ahead"

    @property
    def has_cohort(self) -> bool:
        """Whether some rows pass through a part of the layers in a sweep."""
        return self.strategy in COHORT_STRATEGIES


def homes_of(policy: Policy, question: Question, footprint: Footprint) -> tuple[LayerHome, ...]:
    """Homes that the policy's candidates give to layers."""
    known = question.hardware.host.disk_bytes_per_s is not None
    homes: list[LayerHome] = ["resident"]
    if question.host_only:
        return (*homes, "disk") if known else tuple(homes)
    if policy.streams:
        homes.append("streamed")
    homes.extend(home for home in policy.homes if home not in SLOTTED or policy.streams)
    if policy.streams and known and not footprint.holds_weights:
        homes.append("disk_streamed")
    if "cpu" in policy.homes and known and not footprint.holds_weights:
        homes.append("disk-cpu")
    if policy.streams and not policy.all_streamed:
        homes.append("streamed-mlp")
        homes.extend("host-mlp" for home in policy.homes if home == "host")
    if policy.single_experts and question.model.experts is not None:
        homes.extend(SHARED)
    return tuple(homes)


def ways(
    policy: Policy,
    homes: Sequence[LayerHome],
    num_layers: int,
    *,
    alone: bool,
    may_read_here: bool,
) -> Iterator[Way]:
    """All that a policy allows.

    Args:
        num_layers: of the model.
        homes: that candidates may have; beside a cohort, the CPU computes none, and none is read.
            Layers and MLPs are not streamed both.
        alone: requests that no cohort is of use to.
        may_read_here: prompts of requests on the host may be read on the accelerator.
    """
    for way in _reading_there(policy, homes, num_layers, alone=alone):
        yield way
        if may_read_here and way.strategy != "gpu-only":
            yield way._replace(reads_here=True)


def joined(every: Iterable[Way], *, reading: bool) -> dict[Way, tuple[Way, ...]]:
    """Ways, or some of them as one, by what no member of it falls below in time or memory: with the
    homes of all, and prompts read anywhere.

    Those that stream layers and those that stream MLPs are one, but beside cohorts, where few homes
    are bounded without a programme.

    Args:
        reading: whether ways are joined that differ in where prompts are read.
    """
    groups: dict[tuple[Way, bool], list[Way]] = {}
    for way in every:
        apart = way.has_cohort or way.shares_mixtures or not way.streams
        like = way._replace(
            homes=way.homes if apart else (), reads_here=way.reads_here and not reading
        )
        groups.setdefault((like, way.reads), []).append(way)
    found: dict[Way, tuple[Way, ...]] = {}
    for ways_alike in groups.values():
        whole = _whole(ways_alike)
        known = len(ways_alike) > 1 and whole not in ways_alike
        found |= {whole: tuple(ways_alike)} if known else {way: (way,) for way in ways_alike}
    return found


def _whole(every: Sequence[Way]) -> Way:
    homes = dict.fromkeys(home for way in every for home in way.homes)
    here = {way.reads_here for way in every}
    return every[0]._replace(
        homes=tuple(homes), reads_here=here == {True}, reads_anywhere=len(here) > 1
    )


def _reading_there(
    policy: Policy, homes: Sequence[LayerHome], num_layers: int, *, alone: bool
) -> Iterator[Way]:
    for strategy in policy.strategies:
        cohort = strategy in COHORT_STRATEGIES
        if cohort and alone:
            continue
        if strategy == "asymmetric":
            yield from _with_passes(policy, num_layers)
            continue
        if strategy == "symmetric":
            if not policy.all_streamed:
                yield Way(strategy, ("resident",), True, alone=True, passes=num_layers)
            continue
        all_homes = _without(
            homes, (*CPU_HOMES, "host-mlp", *ON_DISK, *SHARED) if cohort else SHARED
        )
        every = _without(all_homes, MLPS_STREAMED)
        unread = _without(every, ON_DISK)
        lasting = _without(unread, SLOTTED)
        on_cpu = _without(every, SLOTTED)
        mlps: tuple[LayerHome, ...] = (
            *lasting,
            *(home for home in all_homes if home in MLPS_STREAMED),
        )
        shared = () if cohort or not set(SHARED) <= set(homes) else _SHARED_WAYS
        for allowed in dict.fromkeys((lasting, on_cpu, unread, every, mlps, *shared)):
            if allowed in (lasting, on_cpu) and policy.all_streamed:
                continue
            for in_cohort in (False, True) if strategy == "rendezvous" else (False,):
                none_here = policy.keeps_none_here(strategy)
                yield Way(strategy, allowed, none_here, policy.all_streamed, in_cohort)


def _with_passes(policy: Policy, num_layers: int) -> Iterator[Way]:
    """All layers are resident, and some rows' KV lies on the accelerator."""
    if policy.all_on_host or policy.all_streamed:
        return
    for passes in numbers_of_passes(num_layers):
        if policy.allows_passes(passes, num_layers):
            yield Way("asymmetric", ("resident",), passes=passes)


def _without(homes: Sequence[LayerHome], others: Sequence[LayerHome]) -> tuple[LayerHome, ...]:
    return tuple(home for home in homes if home not in others)
