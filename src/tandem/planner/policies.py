"""Policies: restrictions of the search that others' systems and simpler ideas amount to.

All run on the same kernels, programs and predictions, so that a comparison compares policies.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tandem.planner.candidate import STRATEGIES, Candidate, Strategy
from tandem.spec.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Policy:
    """Which candidates are allowed.

    Attributes:
        all_on_host: no request keeps its KV on the accelerator.
        all_streamed: no layer's weights stay there.
        source: where the policy comes from.
    """

    name: str
    summary: str
    source: str
    strategies: tuple[Strategy, ...]
    all_on_host: bool = False
    all_streamed: bool = False

    def allows(self, candidate: Candidate, num_layers: int) -> bool:
        """Whether a candidate keeps to the policy."""
        return (
            candidate.strategy in self.strategies
            and not (self.all_on_host and (candidate.device_rows or candidate.device_share))
            and not (self.all_streamed and candidate.streamed < num_layers - num_layers % 2)
        )

    def contains(self, other: "Policy") -> bool:
        """Whether all that `other` allows is allowed."""
        return (
            set(other.strategies) <= set(self.strategies)
            and self.all_on_host <= other.all_on_host
            and self.all_streamed <= other.all_streamed
        )


_BUILT = (
    Policy("auto", "the best of all that can be executed", "Tandem", STRATEGIES),
    Policy("gpu-only", "KV and attention on the accelerator", "the usual engine", ("gpu-only",)),
    Policy("ride-along", "what does not fit is attended on the host within the same sweep",
           "Tandem", ("gpu-only", "ride-along")),
    Policy("rendezvous", "requests on the host advance one layer per sweep",
           "the asynchronous overlap of APEX, section 4", ("gpu-only", "rendezvous")),
    Policy("simple", "all KV and decode attention on the host, the accelerator waits",
           "NEO section 3.1, strawman 1", ("ride-along",), all_on_host=True),
    Policy("zero-inference", "all weights streamed, all KV on the accelerator",
           "LM-Offload table 3 (wg 0, cg 100)", ("gpu-only",), all_streamed=True),
)  # fmt: skip
POLICIES: Mapping[str, Policy] = {policy.name: policy for policy in _BUILT}
NOT_BUILT: Mapping[str, str] = {
    "symmetric": "two sub-batches in counter-phase",
    "fastdecode": "two sub-batches in counter-phase",
    "neo": "two sub-batches in counter-phase",
    "apex": "pipelining of two sub-batches; its asynchronous overlap alone is 'rendezvous'",
    "flexgen": "several batches per pass over the weights, and streamed KV",
    "zero-inference-stream": "streamed KV",
    "kvpr": "streamed and recomputed KV",
    "lm-offload": "streamed KV and quantized weights",
    "park-egger": "layers, or operations of them, computed on the host",
}
"""Policies whose means cannot be planned yet, and which those are; the engine has some of them."""


def strategy_alone(name: str) -> Policy:
    """Only what is executed by that strategy; all strategies if `name` is `auto`.

    Raises:
        ConfigError: unknown.
    """
    for strategy in STRATEGIES:
        if name == strategy:
            summary = f"nothing but {name}"
            return Policy(f"{name} alone", summary, "Tandem", (strategy,))
    if name == "auto":
        return POLICIES["auto"]
    known = ", ".join(("auto", *STRATEGIES))
    raise ConfigError(f"unknown strategy '{name}'; use one of: {known}", param="strategy")


def find_policy(name: str) -> Policy:
    """The policy of that name.

    Raises:
        ConfigError: unknown, or its means cannot be planned yet.
    """
    if name in NOT_BUILT:
        raise ConfigError(
            f"policy '{name}' cannot be planned: it needs {NOT_BUILT[name]}, which the planner "
            f"does not price yet; use one of: {', '.join(POLICIES)}",
            param="policy",
        )
    if name not in POLICIES:
        raise ConfigError(
            f"unknown policy '{name}'; use one of: {', '.join(POLICIES)}", param="policy"
        )
    return POLICIES[name]
