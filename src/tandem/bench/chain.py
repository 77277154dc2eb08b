"""A step's chain: every weight byte over the rate of what it comes through, one after the other
(algorithms.md, section 6): what decoding one request takes where nothing overlaps.
"""

from dataclasses import dataclass

from tandem.plan.online import OnlinePlan
from tandem.plan.sweep_layers import SweepChoice
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import layer_matrix_parameters, mlp_weights


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
    layer = layer_matrix_parameters(spec) * dtype.size_bytes
    mlp = sum(weight.elements for weight in mlp_weights(spec)) * dtype.size_bytes
    sweep = SweepChoice.of_plan(plan.weights, plan.cpu_rules).of(tokens)
    loads = sweep.loaded if len(sweep.loaded) > sweep.streamed.slots else ()
    loaded = sum(mlp if each in sweep.streamed.mlps else layer for each in loads)
    on_cpu = len(sweep.on_cpu) * layer + len(sweep.mlp_on_cpu) * mlp
    head = spec.vocab_size * spec.hidden_size * dtype.size_bytes
    there = spec.num_layers * layer - loaded - on_cpu + head
    return there / rates.device + loaded / rates.link + on_cpu / rates.host
