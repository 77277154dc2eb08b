"""LM-Offload's choice of bits: weights and KV in 4 bits where the planner finds them faster.

Predicted only, in virtual time and with few bits priced as they are read and dequantized: the
emulated accelerator has no costs of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tandem.plan.offline import QuantizedLayers
from tandem.planner.offline.policies import find_offline_policy
from tandem.planner.offline.search import OfflineSearch
from tandem.planner.question import Question
from tandem.spec.kv_type import CodeType
from tandem.spec.precision import Precision
from tandem.spec.quantized_maps import uniform_formats

_BITS = 4
_POLICIES = ("flexgen", "lm-offload", "auto")


@dataclass(frozen=True, slots=True)
class FewBitsPlan:
    """What a policy would do.

    Attributes:
        allowed: what may be in 4 bits.
        layers: whose maps are. host_kv: whether KV on the host is.
    """

    policy: str
    allowed: str
    layers: QuantizedLayers
    host_kv: bool
    tokens_per_s: float

    @property
    def name(self) -> str:
        """For records."""
        return f"predicted {self.policy}, {self.allowed} in 4 bits"

    @property
    def chosen(self) -> str:
        """In words."""
        weights = {"none": "no weights", "all": "all layers", "streamed": "streamed layers"}
        return f"{weights[self.layers]}{' and KV on the host' if self.host_kv else ''}"


def few_bits_plans(question: Question) -> Iterator[FewBitsPlan]:
    """Of one question in 16 bits: nothing in few bits, weights, KV, and both allowed."""
    for allowed, precision in _allowed(question):
        search = OfflineSearch(replace(question, precision=precision))
        for policy in _POLICIES:
            option = search.best(find_offline_policy(policy))
            if option is not None:
                chosen, rate = option.candidate, option.tokens_per_s
                layers = chosen.quantized
                if layers == "streamed" and not chosen.streamed:
                    layers = "none"
                yield FewBitsPlan(policy, allowed, layers, chosen.host_kv is not None, rate)


def _allowed(question: Question) -> Iterator[tuple[str, Precision]]:
    plain = question.precision
    maps = uniform_formats(question.model, _BITS, None)
    yield "nothing", plain
    yield "weights", replace(plain, quantized=maps)
    yield "KV", replace(plain, kv=CodeType.INT4)
    yield "weights and KV", replace(plain, quantized=maps, kv=CodeType.INT4)
