"""Policies: restrictions of the search that others' systems and simpler ideas amount to.

All run on the same kernels, programs and predictions, so that a comparison compares policies.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tandem.plan.strategy_names import STRATEGIES as EXECUTED
from tandem.planner.candidate import STRATEGIES, Candidate, Strategy
from tandem.planner.elsewhere import CPU_HOMES, CpuHome, Elsewhere
from tandem.spec.errors import ConfigError
from tandem.spec.precision import Precision


@dataclass(frozen=True, slots=True)
class Policy:
    """Which candidates are allowed.

    Attributes:
        all_on_host: no request keeps its KV on the accelerator.
        or_all_on_host: strategies that are allowed where that is so, beside the others.
        all_streamed: no layer's weights stay there.
        homes: ways in which the CPU may compute layers. streams: whether layers may be streamed.
        every_layer: cohorts that have passes of their own have one beside every layer.
        single_experts: of a mixture, some experts may be on the accelerator and others not.
        source: where the policy comes from.
        asked_strategy: whose name was asked for where the policy is that strategy alone.
    """

    name: str
    summary: str
    source: str
    strategies: tuple[Strategy, ...]
    all_on_host: bool = False
    or_all_on_host: tuple[Strategy, ...] = ()
    all_streamed: bool = False
    homes: tuple[CpuHome, ...] = ()
    streams: bool = True
    every_layer: bool = False
    single_experts: bool = False
    asked_strategy: Strategy | None = None

    @property
    def asked_as(self) -> str:
        """As one asks for it."""
        if self.asked_strategy is not None:
            return f"--strategy {self.asked_strategy}"
        return f"policy '{self.name}'"

    def allows(self, candidate: Candidate, num_layers: int) -> bool:
        """Whether a candidate keeps to the policy."""
        return (
            candidate.strategy in self.strategies
            and not (
                self.keeps_none_here(candidate.strategy)
                and (candidate.device_rows or candidate.device_share)
            )
            and not (self.all_streamed and self._keeps_some(candidate, num_layers))
            and (self.streams or not candidate.streamed)
            and (not candidate.on_cpu or candidate.how in self.homes)
            and (self.single_experts or not candidate.experts)
            and self.allows_passes(candidate.passes, num_layers)
        )

    def keeps_none_here(self, strategy: Strategy) -> bool:
        """Whether by this strategy no request may keep its KV on the accelerator."""
        return self.all_on_host or strategy in self.or_all_on_host

    def allows_passes(self, passes: int, num_layers: int) -> bool:
        """Whether a cohort may have so many passes of its own in a sweep."""
        return not (passes and self.every_layer) or passes >= num_layers

    @staticmethod
    def _keeps_some(candidate: Candidate, num_layers: int) -> bool:
        return candidate.mlps or candidate.streamed < num_layers

    def least_resident(self, num_layers: int, *, reads: bool) -> Elsewhere:
        """With as little of the weights on the accelerator as may be.

        Args:
            reads: layers may be on disk.
        """
        if reads and "cpu" in self.homes:
            return Elsewhere(0, num_layers, "cpu", num_layers)
        if reads and self.streams:
            return Elsewhere(num_layers, on_disk=num_layers)
        if "cpu" in self.homes:
            return Elsewhere(0, num_layers, "cpu")
        if "cpu-mlp" in self.homes:
            return Elsewhere(0, num_layers, "cpu-mlp")
        return Elsewhere(num_layers if self.streams else 0)

    def for_weights(self, precision: Precision) -> "Policy":
        """The same, with the CPU computing no layers where it cannot read their weights."""
        return replace(self, homes=()) if precision.holds_floats else self

    def contains(self, other: "Policy") -> bool:
        """Whether all that `other` allows is allowed."""
        return (
            set(other.strategies) <= set(self.strategies)
            and all(
                self.keeps_none_here(each) <= other.keeps_none_here(each)
                for each in other.strategies
            )
            and self.all_streamed <= other.all_streamed
            and set(other.homes) <= set(self.homes)
            and self.streams >= other.streams
            and self.every_layer <= other.every_layer
            and self.single_experts >= other.single_experts
        )


_NEO_ON_HOST: tuple[Strategy, ...] = ("symmetric", "ride-along")
"""What its two sub-batches, and its one, come to where the accelerator has room for no KV."""
_BUILT = (
    Policy("auto", "the best of all", "Tandem", STRATEGIES, homes=CPU_HOMES, single_experts=True),
    Policy("gpu-only", "KV and attention on the accelerator", "the usual engine", ("gpu-only",)),
    Policy("ride-along", "what does not fit is attended on the host within the same sweep",
           "Tandem", ("gpu-only", "ride-along")),
    Policy("rendezvous", "requests on the host advance one layer per sweep",
           "the asynchronous overlap of APEX, section 4",
           ("gpu-only", "rendezvous", "rendezvous-ahead")),
    Policy("asymmetric", "requests on the host advance by several layers per sweep, in passes of "
           "their own", "Tandem, between APEX and NEO", ("gpu-only", "asymmetric")),
    Policy("neo", "requests on the host are a second sub-batch with a pass beside every layer, or "
           "all are on the host, in two sub-batches or one, or none is",
           "NEO section 3.2, but for requests of both kinds in the first sub-batch",
           ("gpu-only", "asymmetric", *_NEO_ON_HOST), or_all_on_host=_NEO_ON_HOST, streams=False,
           every_layer=True),
    Policy("apex", "requests on the host advance one layer per sweep, or as NEO's do",
           "APEX algorithm 1, by predicted time in place of its inequality",
           ("gpu-only", "rendezvous", "rendezvous-ahead", "asymmetric", *_NEO_ON_HOST),
           or_all_on_host=_NEO_ON_HOST, streams=False, every_layer=True),
    Policy("simple", "all KV and decode attention on the host, the accelerator waits",
           "NEO section 3.1, strawman 1", ("ride-along",), all_on_host=True),
    Policy("symmetric", "all KV and attention on the host, of two equal sub-batches in turns",
           "NEO section 3.1, strawman 2, its prompts read on either side", ("symmetric",),
           all_on_host=True, streams=False),
    Policy("fastdecode", "all KV and decode attention on the host, of two sub-batches or of one",
           "FastDecode+ as NEO compares with it (section 5.1)", ("ride-along", "symmetric"),
           all_on_host=True, streams=False),
    Policy("zero-inference", "all weights streamed, all KV on the accelerator",
           "LM-Offload table 3 (wg 0, cg 100)", ("gpu-only",), all_streamed=True),
    Policy("n-gpu-layers", "layers whole on the accelerator or computed on the CPU, none streamed",
           "llama.cpp's --n-gpu-layers, but for where their KV lies", ("gpu-only", "ride-along"),
           homes=("cpu",), streams=False),
    Policy("n-cpu-moe", "MLPs or experts of some layers on the CPU, none streamed",
           "llama.cpp's --n-cpu-moe", ("gpu-only", "ride-along"), homes=("cpu-mlp",),
           streams=False),
)  # fmt: skip
POLICIES: Mapping[str, Policy] = {policy.name: policy for policy in _BUILT}
WITHOUT_PASSES = replace(
    POLICIES["auto"],
    name="without passes",
    strategies=tuple(strategy for strategy in STRATEGIES if strategy != "asymmetric"),
)
"""All but cohorts that have passes of their own."""
GPU_ONLY_BESIDE_CPU = replace(
    POLICIES["gpu-only"], name="gpu-only alone", homes=CPU_HOMES, single_experts=True
)
"""All KV on the accelerator, whoever computes layers."""


def strategy_alone(name: str) -> Policy:
    """Only what is executed by that strategy; all strategies if `name` is `auto`.

    Raises:
        ConfigError: unknown.
    """
    for strategy in STRATEGIES:
        if name == strategy:
            summary = f"nothing but {name}"
            return Policy(
                f"{name} alone",
                summary,
                "Tandem",
                (strategy,),
                homes=CPU_HOMES,
                single_experts=True,
                asked_strategy=strategy,
            )
    if name == "auto":
        return POLICIES["auto"]
    known = ", ".join(EXECUTED)
    if name in POLICIES:
        raise ConfigError(
            f"'{name}' is no strategy, but a policy, which plans keep to: use --policy "
            f"{name}; strategies are: {known}",
            param="strategy",
        )
    raise ConfigError(f"unknown strategy '{name}'; use one of: {known}", param="strategy")


def find_policy(name: str) -> Policy:
    """The policy of that name.

    Raises:
        ConfigError: unknown, or one of batch jobs.
    """
    if name in POLICIES:
        return POLICIES[name]
    from tandem.planner.offline.policies import OFFLINE_POLICIES  # few ask for one of these here

    if name in OFFLINE_POLICIES:
        raise ConfigError(
            f"policy '{name}' is one of batch jobs, with several batches per pass over the weights "
            f"or streamed KV, which tandem plan --offline plans; use one of: {', '.join(POLICIES)}",
            param="policy",
        )
    raise ConfigError(f"unknown policy '{name}'; use one of: {', '.join(POLICIES)}", param="policy")
