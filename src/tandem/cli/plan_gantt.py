"""One decode cycle as text: a row per queue, time to the right; the whole, then some layers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tandem.plan.program import OpKind, Part, ProgramOp, Queue
from tandem.planner.cycle import Cycle, OpSpan, overlap_s
from tandem.spec.units import format_duration

_ROWS = (Queue.ACCEL, Queue.H2D, Queue.D2H, Queue.WEIGHTS, Queue.CPU)
_WIDTH = 72
_SHADES = "·░▒▓█"
SHOWN_LAYERS = 2
MARKS = {
    "before attention": "p",
    "keys and values": "K",
    "queries' maps": "Q",
    "append": "+",
    "attention": "a",
    "merge": "m",
    "after attention": "o",
    "end of attention": "O",
    "routing": "R",
    "experts": "E",
    "MLP": "M",
    "columns of an MLP": "C",
    "residual": "x",
    "embedding": "e",
    "head": "h",
    "sampling": "s",
    "queries": "q",
    "results": "r",
    "tokens": "t",
    "load": "l",
    "read": "d",
    "pages": "g",
    "KV": "c",
    "activations": "v",
    "recomputed KV": "k",
}
_NEXT_LOAD = "L"


def operation_name(op: ProgramOp) -> str:
    """In words, whatever the layer."""
    by_part = {
        Part.PRE: "before attention",
        Part.KEYS_VALUES: "keys and values",
        Part.QUERIES: "queries' maps",
        Part.POST: "after attention",
        Part.OUTPUT: "end of attention",
        Part.ROUTE: "routing",
        Part.EXPERTS: "experts",
        Part.MLP: "MLP",
        Part.COLUMNS: "columns of an MLP",
        Part.RESIDUAL: "residual",
        Part.EMBED: "embedding",
        Part.HEAD: "head",
        Part.QKV: "queries",
        Part.PARTIAL: "results",
        Part.TOKENS: "tokens",
        Part.PAGES: "pages",
        Part.CACHE: "KV",
        Part.PREFIX: "activations",
        Part.RECOMPUTE: "recomputed KV",
    }
    by_kind = {
        OpKind.APPEND: "append",
        OpKind.ATTEND: "attention",
        OpKind.MERGE: "merge",
        OpKind.SAMPLE: "sampling",
        OpKind.LOAD: "load",
        OpKind.READ: "read",
    }
    return by_part[op.part] if op.kind in (OpKind.STAGE, OpKind.COPY) else by_kind[op.kind]


def rows(cycle: Cycle) -> tuple[Queue, ...]:
    """Queues that are shown: the disk's only if something is read."""
    return (*_ROWS, Queue.DISK) if cycle.on(Queue.DISK) else _ROWS


def cycle_json(cycle: Cycle) -> dict[str, Any]:
    """A cycle for machines; what runs at its bounds begins before it or ends after it."""
    return {
        "period_s": cycle.period_s,
        "operations": [
            {
                "queue": span.op.queue.value,
                "operation": operation_name(span.op),
                "layer": span.op.layer,
                "begin_s": span.begin_s,
                "end_s": span.end_s,
            }
            for span in cycle.spans
        ],
    }


def gantt_text(
    cycle: Cycle,
    title: str = "One decode cycle",
    width: int = _WIDTH,
    layers: Mapping[int, float] | None = None,
) -> Iterator[str]:
    """The lines to print.

    Args:
        width: characters of a row's time.
        layers: when each begins: they are marked above the whole. None: by the first operation of
            each.
    """
    whole = format_duration(cycle.period_s)
    yield f"{title}, {whole}: how much of each moment a queue is busy"
    if layers is not None:
        yield f"  {'layer':<10}{_ruler(layers, cycle.period_s, width)}"
    for queue in rows(cycle):
        yield f"  {queue.value:<10}{_shades(cycle, queue, width)}"
    yield _axis("0", whole, width)
    first, begin_s, end_s = some_layers(cycle, layers)
    seen = [span for span in cycle.spans if overlap_s(span, begin_s, end_s)]
    yield f"Of it, {SHOWN_LAYERS} layers from layer {first} on: what a queue is at"
    for queue in rows(cycle):
        spans = [span for span in seen if span.op.queue is queue]
        yield f"  {queue.value:<10}{_marks(spans, begin_s, end_s, width)}"
    yield _axis(format_duration(max(0.0, begin_s)), format_duration(end_s), width)
    names = {operation_name(span.op) for span in seen}
    legend = [f"{mark} {name}" for name, mark in MARKS.items() if name in names]
    legend += [f"{_NEXT_LOAD} the next load"] if "load" in names else []
    yield f"  {'':<10}{', '.join(legend)}"


def _axis(begin: str, end: str, width: int) -> str:
    return f"  {'':<10}{begin}{end:>{width - len(begin)}}"


def _ruler(layers: Mapping[int, float], period_s: float, width: int) -> str:
    """Numbers of layers where they begin; those that there is no room for are left out."""
    line = ""
    for layer, begin_s in sorted(layers.items(), key=lambda item: item[1]):
        place = int(max(0.0, begin_s) / period_s * width)
        if place >= len(line) + bool(line) and place + len(str(layer)) <= width:
            line = f"{line:<{place}}{layer}"
    return line


def _cells(begin_s: float, end_s: float, width: int) -> list[tuple[float, float]]:
    step_s = (end_s - begin_s) / width
    return [(begin_s + i * step_s, begin_s + (i + 1) * step_s) for i in range(width)]


def _shades(cycle: Cycle, queue: Queue, width: int) -> str:
    """A cell's shade is the share of its time; what is there at all is seen."""
    spans, shades = cycle.on(queue), ""
    for begin_s, end_s in _cells(0.0, cycle.period_s, width):
        share = sum(overlap_s(span, begin_s, end_s) for span in spans) / (end_s - begin_s)
        level = round(share * (len(_SHADES) - 1))
        shades += _SHADES[max(level, 1 if share > 0 else 0)]
    return shades


def _marks(spans: Sequence[OpSpan], begin_s: float, end_s: float, width: int) -> str:
    """In each cell, what runs longest in it."""
    marks = ""
    loads = [span for span in spans if span.op.kind is OpKind.LOAD]
    for cell in _cells(begin_s, end_s, width):
        longest = max(spans, key=lambda span: overlap_s(span, *cell), default=None)
        if longest is None or not overlap_s(longest, *cell):
            marks += _SHADES[0]
        elif longest in loads[1::2]:
            marks += _NEXT_LOAD
        else:
            marks += MARKS[operation_name(longest.op)]
    return marks


def some_layers(
    cycle: Cycle, layers: Mapping[int, float] | None = None
) -> tuple[int, float, float]:
    """The first of two layers in the middle, the streamed one that is nearest to it if there is
    one; and when they begin and end.

    Args:
        layers: when each layer begins, of which those are shown where most is going on; None: with
            its first operation.
    """
    begins = dict(layers or {})
    for span in () if layers else cycle.spans:  # layers on the CPU begin there
        if span.op.part is Part.PRE:
            begins.setdefault(span.op.layer, span.begin_s)
    numbers = sorted(begins)
    middle = numbers[len(numbers) // 2]
    loaded = {span.op.layer for span in cycle.on(Queue.WEIGHTS)} & set(numbers[:-1])
    first = min(loaded, key=lambda layer: abs(layer - middle), default=middle)
    if layers:
        first = max(numbers[:-1], key=lambda n: (_going_on(cycle, begins, n), -abs(n - middle)))
    return first, begins[first], begins.get(first + SHOWN_LAYERS, cycle.period_s)


def _going_on(cycle: Cycle, begins: Mapping[int, float], first: int) -> int:
    """Operations of some layers from that one on."""
    end_s = begins.get(first + SHOWN_LAYERS, cycle.period_s)
    return sum(overlap_s(span, begins[first], end_s) > 0 for span in cycle.spans)
