"""What is measured, in order: each part has a record of its own and may be repeated alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.gpu.cells import LargerCell, OnlineCell, PlannedCell
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.scale import Scale

from tandem.spec.errors import ConfigError

KERNEL_TESTS, ENGINE_TESTS = ("probes", "triton", "kernels"), ("engine", "offline")
"""Files of smoke tests, in order."""
_MODEL_LIMIT_S, _MODEL_LEAST_S = 260.0, 120.0

Measure = Callable[[Scale, Deadline, Findings], None]


@dataclass(frozen=True, slots=True)
class Part:
    """One record.

    Attributes:
        limit_s: after which it is ended. least_s: with less left of a call, it is not begun.
        load: imports what measures it; parts need not import each other's libraries.
        lacks: in an environment, what is wrong with what it left beside its record, for parts after
            it; None if nothing is.
    """

    name: str
    limit_s: float
    least_s: float
    load: Callable[[], Measure]
    lacks: Callable[[Mapping[str, str]], str | None] = lambda environment: None


def parts_of(scale: Scale) -> list[Part]:
    """Of a scale, what decides most first: a call may be the only one. What only a GPU can do is
    left out without one. `auto` and plans choose by the profile, which therefore comes before. Of
    online cells, what has a target comes before what has none, whatever the cell.
    """
    check = [Part("check-kernels", 200, 60, partial(_check, KERNEL_TESTS)),
             Part("check-engines", 280, 90, partial(_check, ENGINE_TESTS))]  # fmt: skip
    online = [_model_part("online", cell.name, partial(_online, cell)) for cell in scale.online]
    mixtures = [_model_part("online", cell.name, partial(_online, cell)) for cell in scale.mixtures]
    others = [
        _model_part("online", f"{cell.name}-others", partial(_others, cell))
        for cell in (*scale.online, *scale.mixtures)
        if cell.policies[1:]
    ]
    larger = [_model_part("larger", cell.name, partial(_larger, cell)) for cell in scale.larger]
    planned = [_model_part("planned", cell.name, partial(_planned, cell)) for cell in scale.planned]
    offline = [_model_part("offline", cell.name, partial(_offline, cell)) for cell in scale.offline]
    return [
        *(check if scale.accelerator == "cuda" else ()),
        Part("profile", 240, 60, _profile, _lacks_profile),
        *online[:1],
        Part("links", 120, 40, _links),
        Part("kernels", 200, 60, _kernels),
        *larger[:1],
        *planned[:1],
        *offline[:1],
        *online[1:],
        *others,
        Part("tiles", 260, 90, _tiles),
        Part("host", 300, 150, _host),
        Part("host-amx", 300, 150, _host_amx),
        *larger[1:],
        *planned[1:],
        *offline[1:],
        *mixtures,
    ]


def _model_part(kind: str, cell: str, load: Callable[[], Measure]) -> Part:
    return Part(f"{kind}-{cell}", _MODEL_LIMIT_S, _MODEL_LEAST_S, load)


def _check(names: Sequence[str]) -> Measure:
    from benchmarks.gpu.check_part import measure_check

    return partial(measure_check, names)


def _profile() -> Measure:
    from benchmarks.gpu.profile_part import measure_profile

    return measure_profile


def _lacks_profile(environment: Mapping[str, str]) -> str | None:
    from benchmarks.gpu.stored import stored_profile

    try:
        stored_profile(environment)
    except ConfigError as error:
        return str(error)
    return None


def _links() -> Measure:
    from benchmarks.gpu.links_part import measure_links

    return measure_links


def _kernels() -> Measure:
    from benchmarks.gpu.kernels_part import measure_kernels

    return measure_kernels


def _tiles() -> Measure:
    from benchmarks.gpu.tiles_part import measure_tiles

    return measure_tiles


def _host() -> Measure:
    from benchmarks.gpu.host_part import measure_host

    return measure_host


def _host_amx() -> Measure:
    from benchmarks.gpu.host_part import measure_host_amx

    return measure_host_amx


def _online(cell: OnlineCell) -> Measure:
    from benchmarks.gpu.online_part import measure_online

    return partial(measure_online, cell)


def _others(cell: OnlineCell) -> Measure:
    from benchmarks.gpu.online_others import measure_others

    return partial(measure_others, cell)


def _larger(cell: LargerCell) -> Measure:
    from benchmarks.gpu.larger_part import measure_larger

    return partial(measure_larger, cell)


def _planned(cell: PlannedCell) -> Measure:
    from benchmarks.gpu.planned_part import measure_planned

    return partial(measure_planned, cell)


def _offline(cell: PlannedCell) -> Measure:
    from benchmarks.gpu.planned_part import measure_offline

    return partial(measure_offline, cell)
