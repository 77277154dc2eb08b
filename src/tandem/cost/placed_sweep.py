"""How long a sweep takes by where its layers are placed, and by the rules about small steps."""

from collections.abc import Mapping, Sequence

from tandem.cost.sweep_time import LayerTimes, SplitTimes, Way, sweep_s
from tandem.plan.sweep_layers import CpuRule, SweepChoice
from tandem.plan.weights import Home, WeightPlacement, homes_by_layer

_WAYS: dict[Home, Way] = {
    "resident": "resident", "streamed": "loaded", "host": "loaded", "host-mlp": "loaded-mlp",
    "disk_streamed": "read", "disk-cpu": "read-cpu", "cpu": "cpu", "cpu-mlp": "cpu-mlp",
}  # fmt: skip
_COMPUTED: dict[Home, Way] = {"host": "cpu", "host-mlp": "cpu-mlp"}


def predicted_sweep_s(
    placements: Sequence[WeightPlacement],
    rules: Sequence[CpuRule],
    tokens: int,
    times: LayerTimes,
    split: Mapping[int, SplitTimes] | None = None,
) -> float:
    """Of a step of `tokens` tokens, of which `times` are.

    Args:
        split: of mixtures of experts with home `cpu-mlp` or `host-mlp`.
    """
    sweep = SweepChoice.of_plan(placements, rules).of(tokens)
    ways = ways_of(placements, (*sweep.on_cpu, *sweep.mlp_on_cpu))
    return sweep_s(ways, sweep.streamed.slots, times, split)


def ways_of(placements: Sequence[WeightPlacement], on_cpu: tuple[int, ...]) -> list[Way]:
    """Of each layer, where the CPU computes those of `on_cpu`, or their MLPs."""
    return [
        _COMPUTED.get(home, _WAYS[home]) if layer in on_cpu else _WAYS[home]
        for layer, home in sorted(homes_by_layer(placements).items())
    ]
