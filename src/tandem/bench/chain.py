"""A step's chain: every weight byte over the rate of what it comes through, one after the other
(algorithms.md, section 6): what decoding one request takes where nothing overlaps.

Of a mixture's experts those count that tokens go to, as expected where all are as likely, and of
what is streamed all. The two sides of a mixture that both compute work at once: the slower counts.
"""

from collections.abc import Collection
from dataclasses import dataclass

from tandem.cost.expert_use import ExpertUse
from tandem.plan.online import OnlinePlan
from tandem.plan.sweep_layers import SweepChoice, SweepLayers
from tandem.plan.weights import resident_experts
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import expert_matrix_bytes, layer_matrix_bytes, mlp_matrix_bytes
from tandem.spec.precision import Precision


@dataclass(frozen=True, slots=True)
class ChainRates:
    """Bytes per second: reading the accelerator's memory, the link to it, reading the host's."""

    device: float
    link: float
    host: float


def chain_s(
    plan: OnlinePlan, spec: ModelSpec, dtype: DType, rates: ChainRates, tokens: int = 1
) -> float:
    """Seconds of a step of so many tokens, by the way that the plan computes it."""
    sweep = SweepChoice.of_plan(plan.weights, plan.cpu_rules).of(tokens)
    loads = sweep.loaded if sweep.reloads else ()
    here = resident_experts(plan.weights)
    layers = (
        _LayerBytes.of(spec, dtype, layer, here.get(layer, ()), tokens)
        for layer in range(spec.num_layers)
    )
    chain = sum(_layer_s(size, sweep, n, n in loads, rates) for n, size in enumerate(layers))
    head = spec.vocab_size * spec.hidden_size * dtype.size_bytes
    return chain + head / rates.device


@dataclass(frozen=True, slots=True)
class _LayerBytes:
    """Of one layer's linear maps.

    Attributes:
        attention: all but the MLP's. routed: a mixture's router, which goes with the experts that
            are resident. here: the MLP's, or of experts that are resident, those that tokens go to.
            there: of the others.
        mlp: the MLP's, or all experts' and the router's. kept: of them, what is resident where
            others are in host memory.
    """

    attention: int
    routed: float
    here: float
    there: float
    mlp: int
    kept: int

    @staticmethod
    def of(
        spec: ModelSpec, dtype: DType, layer: int, resident: Collection[int], tokens: int
    ) -> "_LayerBytes":
        """Of a step of `tokens` tokens."""
        precision = Precision.uniform(dtype)
        mlp = mlp_matrix_bytes(spec, precision, layer)
        attention = layer_matrix_bytes(spec, precision, layer) - mlp
        experts = spec.routed_experts(layer)
        if experts is None:
            return _LayerBytes(attention, 0, 0, mlp, mlp, 0)
        each = expert_matrix_bytes(spec, precision, layer)
        router, use = mlp - experts.count * each, ExpertUse.uniform(spec)
        others = [expert for expert in range(experts.count) if expert not in resident]
        here, there = (each * use.touched(layer, ids, tokens) for ids in (resident, others))
        kept = router + len(resident) * each if resident else 0
        return _LayerBytes(attention, router, here, there, mlp, kept)


def _layer_s(
    size: _LayerBytes, sweep: SweepLayers, layer: int, loads: bool, rates: ChainRates
) -> float:
    """Of one layer. What comes over the link is not counted again where it is read there."""
    needed = size.routed + size.here + size.there
    if layer in sweep.on_cpu:
        return (size.attention + needed) / rates.host
    attention_s = size.attention / rates.device
    if layer in sweep.split_mlps:
        here_s = size.here / rates.device
        return attention_s + size.routed / rates.device + max(here_s, size.there / rates.host)
    if layer in sweep.mlp_on_cpu:
        return attention_s + needed / rates.host
    if loads and layer in sweep.streamed.mlps:
        stays = size.routed + size.here if size.kept else 0
        return attention_s + stays / rates.device + (size.mlp - size.kept) / rates.link
    if loads:
        return (size.attention + size.mlp) / rates.link
    return attention_s + needed / rates.device
