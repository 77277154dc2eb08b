"""Which layers, or MLPs, in host memory the CPU computes, by the size of a step and predicted time.

A large step streams: the link's time is the same for any number of tokens. A small one leaves
layers where they lie if the host's memory is faster than the link, or both share the work.
"""

from collections.abc import Iterator, Mapping, Sequence

from tandem.cost.expert_use import ExpertUse
from tandem.cost.placed_sweep import mixture_times, ways_of
from tandem.cost.split_mixture import MixtureBytes
from tandem.cost.sweep_time import LayerTimes, SplitTimes, layer_times, sweep_s
from tandem.plan.sweep_layers import CpuRule, SweepChoice, spread_among
from tandem.plan.weights import (
    LENT,
    WeightPlacement,
    homes_by_layer,
    resident_experts,
    streamed_layers,
)
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import HardwareSpec
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision

_MIN_GAIN = 0.02
"""Less than this share of a sweep is not worth another way."""
_MOST_TRIED = 40
"""Numbers of layers that are compared; of more layers, not every number is."""


def choose_cpu_rules(
    placements: Sequence[WeightPlacement],
    spec: ModelSpec,
    precision: Precision,
    max_tokens: int,
    hardware: HardwareSpec,
    use: ExpertUse | None = None,
) -> tuple[CpuRule, ...]:
    """Rules for steps of up to 1, 2, 4, ... `max_tokens` tokens; none where streaming is best.

    Args:
        use: of experts, where some stay on the accelerator; None: uniform.
    """
    homes = homes_by_layer(placements)
    if not any(home in LENT for home in homes.values()):
        return ()
    use = use or ExpertUse.uniform(spec)
    sizes = MixtureBytes.of(spec, precision) if resident_experts(placements) else None
    rules: list[CpuRule] = []
    for tokens in _sizes(max_tokens):
        split = mixture_times(placements, spec, precision, tokens, hardware, use, sizes)
        times = layer_times(spec, precision, tokens, hardware)
        layers = _fastest(placements, times, split)
        if rules and rules[-1].layers == layers:
            rules.pop()
        rules.append(CpuRule(tokens, layers))
    while rules and not rules[-1].layers:  # beyond the last rule they are streamed anyway
        rules.pop()
    return tuple(rules)


def _sizes(max_tokens: int) -> Iterator[int]:
    size = 1
    while size < max_tokens:
        yield size
        size *= 2
    yield max_tokens


def _fastest(
    placements: Sequence[WeightPlacement], times: LayerTimes, split: Mapping[int, SplitTimes]
) -> tuple[int, ...]:
    """Layers for the CPU: as few as possible of those that are predicted about as fast."""
    slots = streamed_layers(placements).slots
    best: tuple[int, ...] = ()
    best_s = float("inf")
    for layers in _candidates(placements):
        predicted_s = sweep_s(ways_of(placements, layers), slots, times, split)
        if predicted_s < best_s * (1 - _MIN_GAIN):
            best, best_s = layers, predicted_s
    return best


def _candidates(placements: Sequence[WeightPlacement]) -> Iterator[tuple[int, ...]]:
    """None of the layers that may be computed on the CPU, then ever more of them; those that
    sweeps begin with stay in their slots. Where layers on disk go both ways, what would change the
    order of reads is left out.
    """
    streamed, homes = streamed_layers(placements), homes_by_layer(placements)
    free = [layer for layer in streamed.layers[streamed.slots :] if homes[layer] in LENT]
    step = 1 + len(free) // _MOST_TRIED
    both = bool(streamed.on_disk) and "disk-cpu" in homes.values()
    for count in (*range(0, len(free), step), len(free)):
        layers = spread_among(free, count)
        if not both or _keeps_reads(placements, layers):
            yield layers


def _keeps_reads(placements: Sequence[WeightPlacement], layers: tuple[int, ...]) -> bool:
    try:
        SweepChoice.of_plan(placements, (CpuRule(1, layers),))
    except ConfigError:
        return False
    return True
