"""How long a sweep takes by where its layers are placed, and by the rules about small steps."""

from collections.abc import Mapping, Sequence

from tandem.cost.expert_use import ExpertUse
from tandem.cost.split_mixture import MixtureBytes
from tandem.cost.sweep_time import LayerTimes, SplitTimes, Way, split_times, sweep_s
from tandem.plan.sweep_layers import CpuRule, SweepChoice
from tandem.plan.weights import (
    MLPS_APART,
    Home,
    WeightPlacement,
    homes_by_layer,
    resident_experts,
)
from tandem.spec.hardware import HardwareSpec
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision

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


def mixture_times(
    placements: Sequence[WeightPlacement],
    spec: ModelSpec,
    precision: Precision,
    tokens: int,
    hardware: HardwareSpec,
    use: ExpertUse,
    sizes: MixtureBytes | None,
) -> dict[int, SplitTimes]:
    """By layer, of mixtures of experts with home `cpu-mlp` or `host-mlp`; of `tokens` tokens.

    Args:
        sizes: of the model's mixtures; None: there are none.
    """
    if sizes is None:
        return {}
    resident = resident_experts(placements)
    alike: dict[tuple[tuple[float, ...], tuple[int, ...]], SplitTimes] = {}
    found: dict[int, SplitTimes] = {}
    for layer, home in homes_by_layer(placements).items():
        if home not in MLPS_APART or spec.routed_experts(layer) is None:
            continue
        key = use.shares[layer], resident.get(layer, ())
        if key not in alike:
            alike[key] = split_times(spec, precision, tokens, hardware, layer, key[1], use, sizes)
        found[layer] = alike[key]
    return found


def ways_of(placements: Sequence[WeightPlacement], on_cpu: tuple[int, ...]) -> list[Way]:
    """Of each layer, where the CPU computes those of `on_cpu`, or their MLPs."""
    return [
        _COMPUTED.get(home, _WAYS[home]) if layer in on_cpu else _WAYS[home]
        for layer, home in sorted(homes_by_layer(placements).items())
    ]
