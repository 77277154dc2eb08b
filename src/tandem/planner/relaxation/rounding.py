"""Placements near the optimum of the linear programme: its shares in whole layers and requests."""

import math
from collections.abc import Iterable, Iterator, Mapping

from tandem.plan.disk_slots import SLOTS
from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.candidate import Candidate, candidate_of
from tandem.planner.elsewhere import CPU_HOMES, Elsewhere
from tandem.planner.footprint import Footprint
from tandem.planner.passing import enough_prompts_here
from tandem.planner.question import Question
from tandem.planner.relaxation.bounded import Bounded
from tandem.planner.relaxation.homes import (
    EXPERTS_STREAMED,
    MLPS_STREAMED,
    SHARED,
    THROUGH_SLOTS,
    LayerHome,
)

_WHOLE = 1e-6  # of a layer


def roundings(
    question: Question, footprint: Footprint, ranges: Iterable[Bounded]
) -> list[Candidate]:
    """Of ranges of rows, each rounded both ways, what fits."""
    found: dict[Candidate, None] = {}
    for bounded in ranges:
        found |= dict.fromkeys(filter(footprint.fits, _near(question, footprint, bounded)))
    return list(found)


def _near(question: Question, footprint: Footprint, bounded: Bounded) -> Iterator[Candidate]:
    every = dict.fromkeys(_elsewheres(bounded.shares.layers, question))
    if footprint.embedding_bytes:  # they make room for layers first
        every = dict.fromkeys(each._replace(embedding=True) for each in every) | every
    for elsewhere in every:
        for through, cohort in (
            (bounded.rows.through.most, bounded.rows.cohort.most),
            (bounded.rows.through.least, bounded.rows.cohort.least),
        ):
            yield from _with_rows(question, footprint, bounded, elsewhere, through, cohort)


def _with_rows(
    question: Question,
    footprint: Footprint,
    bounded: Bounded,
    elsewhere: Elsewhere,
    through: int,
    cohort: int,
) -> Iterator[Candidate]:
    """Rows where the programme has them; fewer on the accelerator if they do not fit."""
    way = bounded.way
    if way.has_cohort:
        device, hosted = through, cohort
    else:
        hosted = round(bounded.shares.hosted * through)
        device = through - hosted
    if way.strategy == "ride-along" and not hosted:
        device, hosted = through - 1, 1
    while True:
        step = bounded.rows.step_tokens
        candidate = candidate_of(way.strategy, elsewhere, device, hosted, way.passes, step)
        if way.reads_here and hosted:
            here = enough_prompts_here(question, candidate)
            candidate = candidate._replace(prompts_here=here)
        if not candidate.rows:
            return
        if footprint.fits(candidate) or not device:
            yield candidate
            return
        device = min(device - 1, int(device * 0.95))


def _elsewheres(layers: Mapping[LayerHome, float], question: Question) -> Iterator[Elsewhere]:
    """What is not resident, rounded up, and down to the next whole layers or experts."""
    if any(layers.get(home, 0.0) > _WHOLE for home in SHARED):
        yield from _shared(layers, question)
        return
    slotted = sum(layers.get(home, 0.0) for home in THROUGH_SLOTS)
    mlps = any(layers.get(home, 0.0) > _WHOLE for home in MLPS_STREAMED)
    lent = layers.get("host-mlp" if mlps else "host", 0.0)
    how = max(CPU_HOMES, key=lambda home: layers.get(home, 0.0) if home != "host" else 0.0)
    on_cpu = 0.0 if how == "host" else layers.get(how, 0.0)
    read = layers.get("disk", 0.0) if question.host_only else layers.get("disk_streamed", 0.0)
    read_on_cpu = layers.get("disk-cpu", 0.0)
    held = layers.get("cpu", 0.0)
    for whole in (_up, math.floor):
        count = min(whole(slotted), question.movable_layers)
        if question.host_only:
            yield Elsewhere(on_disk=_beyond(whole(read), SLOTS, question.movable_layers))
            continue
        if read_on_cpu > _WHOLE and not count:
            computed = min(whole(held + read_on_cpu), question.movable_layers)
            yield Elsewhere(0, computed, "cpu", on_disk=min(_up(read_on_cpu), computed))
            continue
        streamed = _beyond(count, STREAM_SLOTS, question.movable_layers)
        here = Elsewhere(streamed, on_disk=min(_up(read), streamed), mlps=mlps and streamed > 0)
        computed = min(whole(on_cpu), question.movable_layers - streamed)
        if computed > 0:
            yield here._replace(on_cpu=computed, how=how)
            continue
        for number in (_up(lent), math.floor(lent)):
            yield here.lending(number)


def _shared(layers: Mapping[LayerHome, float], question: Question) -> Iterator[Elsewhere]:
    """Of all mixtures, as many experts in each."""
    assert question.model.experts is not None
    count, every = question.model.experts.count, question.movable_layers
    streamed = sum(layers.get(home, 0.0) for home in EXPERTS_STREAMED)
    away = (streamed + layers.get("experts-cpu", 0.0)) / every
    lent = every * layers.get("experts-host", 0.0) / streamed if streamed > _WHOLE else 0.0
    for whole in (_up, math.floor):
        experts = count - whole(away * count)
        if not 0 < experts < count:
            continue
        if streamed <= _WHOLE:
            yield Elsewhere(0, every, "cpu-mlp", experts=experts)
            continue
        for number in (_up(lent), math.floor(lent)):
            yield Elsewhere(every, mlps=True, experts=experts).lending(number)


def _beyond(count: int, slots: int, most: int) -> int:
    """None, or more than there are slots."""
    return min(max(count, slots + 1), most) if count else 0


def _up(share: float) -> int:
    return math.ceil(share - _WHOLE)
