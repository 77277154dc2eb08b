"""A plan as a picture: the tiers as bars of memory, one decode cycle as a Gantt chart."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tandem.bench.picture import save_picture
from tandem.cli.plan_gantt import SHOWN_LAYERS, operation_name, rows, some_layers
from tandem.planner.answer import Answer
from tandem.planner.cycle import Cycle, overlap_s
from tandem.spec.units import GIB, format_duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from tandem.planner.offline.answer import OfflineAnswer

_USES = {
    "weights": "tab:blue",
    "workspace": "tab:orange",
    "KV": "tab:green",
    "slots": "tab:olive",
    "free": "lightgray",
}
OPERATIONS = {
    "before attention": "tab:cyan",
    "keys and values": "paleturquoise",
    "queries' maps": "cadetblue",
    "append": "tab:pink",
    "attention": "tab:green",
    "merge": "tab:olive",
    "after attention": "tab:blue",
    "end of attention": "navy",
    "routing": "teal",
    "experts": "limegreen",
    "MLP": "gold",
    "columns of an MLP": "khaki",
    "residual": "silver",
    "embedding": "tab:brown",
    "head": "tab:purple",
    "sampling": "tab:red",
    "load": "tab:orange",
    "read": "peru",
    "queries": "tab:gray",
    "results": "black",
    "tokens": "deeppink",
    "pages": "olivedrab",
    "KV": "darkseagreen",
    "activations": "plum",
    "recomputed KV": "orchid",
}


class Tier(NamedTuple):
    """Bytes of one memory, by what they are for."""

    name: str
    uses: Mapping[str, int]


def online_tiers(answer: Answer) -> list[Tier]:
    """Of a plan for requests as they come."""
    return [
        Tier(
            name,
            {
                "weights": use.weights_bytes,
                "workspace": use.workspace_bytes,
                "KV": use.kv_bytes,
                "free": max(0, use.free_bytes),
            },
        )
        for name, use in (("accelerator", answer.device), ("host", answer.host))
    ]


def offline_tiers(answer: "OfflineAnswer") -> list[Tier]:
    """Of a plan for a batch job."""
    plan = answer.plan
    return [
        Tier(
            name,
            {
                "weights": use.weights_bytes,
                "workspace": use.workspace_bytes,
                "KV": use.kv_bytes,
                "slots": use.slot_bytes,
                "free": use.free_bytes,
            },
        )
        for name, use in (("accelerator", plan.accelerator), ("host", plan.host))
    ]


def plot_plan(title: str, memory: Sequence[Tier], cycle: Cycle, path: Path, what: str) -> None:
    """Draw the picture; arguments as of `plan_figure`.

    Raises:
        ConfigError: the file cannot be written.
    """
    save_picture(plan_figure(title, memory, cycle, what), path)


def plan_figure(title: str, memory: Sequence[Tier], cycle: Cycle, what: str) -> "Figure":
    """Memory, a cycle as a whole, and some layers of it.

    Args:
        title: what is planned, and for which machine.
        what: the cycle is, in words.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 8), layout="constrained")
    tiers, whole, layers = figure.subplots(3, 1, height_ratios=[2, 3, 3])
    figure.suptitle(title, fontsize=10)
    _draw_tiers(tiers, memory)
    _draw_cycle(whole, cycle, 0.0, cycle.period_s)
    whole.set_title(f"{what}, {format_duration(cycle.period_s)}; how busy queues are", fontsize=9)
    first, begin_s, end_s = some_layers(cycle)
    _draw_cycle(layers, cycle, begin_s, end_s)
    layers.set_title(f"of it, {SHOWN_LAYERS} layers from layer {first} on", fontsize=9)
    return figure


def _draw_tiers(axes: "Axes", memory: Sequence[Tier]) -> None:
    lefts = [0.0] * len(memory)
    for label, colour in _USES.items():
        if not any(label in tier.uses for tier in memory):
            continue
        sizes = [tier.uses.get(label, 0) / GIB for tier in memory]
        axes.barh([tier.name for tier in memory], sizes, left=lefts, color=colour, label=label)
        lefts = [left + size for left, size in zip(lefts, sizes, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("GiB that may be used", fontsize=8)
    axes.legend(fontsize=7, ncols=len(_USES), loc="upper right")


def _draw_cycle(axes: "Axes", cycle: Cycle, begin_s: float, end_s: float) -> None:
    """Bars of the operations by name; those that run at both bounds are cut there. Only of queues
    that run something in the cycle, each with the share of the time shown in which it does.
    """
    queues = [queue for queue in rows(cycle) if cycle.busy(queue, 0.0, cycle.period_s)]
    names = [f"{queue.value}, {cycle.busy(queue, begin_s, end_s):.0%}" for queue in queues]
    for name, colour in OPERATIONS.items():
        labelled = False
        for row, queue in enumerate(queues):
            bars = [
                (max(span.begin_s, begin_s) * 1e3, overlap_s(span, begin_s, end_s) * 1e3)
                for span in cycle.on(queue)
                if operation_name(span.op) == name and overlap_s(span, begin_s, end_s)
            ]
            if bars:
                label = "_" if labelled else name
                edge = "white" if name == "load" else colour  # else the short ones vanish
                axes.broken_barh(
                    bars,
                    (row - 0.4, 0.8),
                    facecolor=colour,
                    edgecolor=edge,
                    linewidth=0.6,
                    label=label,
                )
                labelled = True
    axes.set_yticks(range(len(queues)), names)
    axes.set_ylim(len(queues) - 0.5, -0.5)
    axes.set_xlim(begin_s * 1e3, end_s * 1e3)
    axes.set_xlabel("ms", fontsize=8)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
