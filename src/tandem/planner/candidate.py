"""One thing that the engine could do: a placement, a strategy, and how many rows lie where."""

from typing import Literal, NamedTuple

from tandem.plan.interposition import token_sweeps
from tandem.plan.sweep_layers import CpuRule
from tandem.plan.weights import WeightPlacement
from tandem.planner.elsewhere import CpuHome, Elsewhere
from tandem.spec.config import KVPlacement
from tandem.spec.model import ModelSpec

Strategy = Literal[
    "gpu-only", "ride-along", "rendezvous", "rendezvous-ahead", "symmetric", "asymmetric"
]
STRATEGIES: tuple[Strategy, ...] = (
    "gpu-only", "ride-along", "rendezvous", "rendezvous-ahead", "symmetric", "asymmetric",
)  # fmt: skip
"""The simplest first."""
COHORT_STRATEGIES: tuple[Strategy, ...] = (
    "rendezvous", "rendezvous-ahead", "symmetric", "asymmetric",
)  # fmt: skip
LEAST_COHORT_LAYERS = 6
"""Of a model whose cohorts are predicted: they are, in mid-sweep."""
_COHORTS = frozenset(COHORT_STRATEGIES)  # looked at for each of thousands
_LAYERS_TO_A_PASS = (1, 2, 4)
"""Fewer passes hardly differ from none."""
_EDGES_ALONE, _EDGES_BESIDE = 2, 1  # sweeps from a cohort's last layer to its next token's first
_EDGES_AHEAD = 2
"""Likewise, of a cohort that joins every sweep."""
COHORTS = 2
"""Beside rows that each sweep serves. Whether a cohort has joined a sweep is known when the next
one is submitted already: it joins every other one, and two take turns; or both join ahead of what
they follow, in every sweep.
"""


class Candidate(NamedTuple):
    """A point of the search; a tuple, since it is the key to all that is known of thousands.

    Attributes:
        streamed: layers that come to the accelerator in every sweep, or in those with prompts.
        device_rows, host_rows: requests that run at once with their KV in that tier.
        device_share: of the KV of `host_rows`, what lies on the accelerator all the same: requests
            that are too long for it are split over both tiers.
        on_cpu, how: layers that the CPU computes, as in `Elsewhere`. on_disk: that are read,
            likewise. mlps: whether only MLPs are streamed, likewise. embedding: likewise.
        passes: of its own, that a cohort may have in a sweep; of two halves that take turns, beside
            every layer.
        experts: resident ones of mixtures that are elsewhere, as in `Elsewhere`.
        step_tokens: most that a step computes; 0: as many as the question says.
        prompts_here: of requests on the host, that have room on the accelerator at once to be read
            there; 0: they are read on the host.
    """

    strategy: Strategy
    streamed: int
    device_rows: int
    host_rows: int
    device_share: float = 0.0
    on_cpu: int = 0
    how: CpuHome = "cpu"
    on_disk: int = 0
    mlps: bool = False
    passes: int = 0
    embedding: bool = False
    experts: int = 0
    step_tokens: int = 0
    prompts_here: int = 0

    @property
    def reads_here(self) -> bool:
        """Whether requests on the host read their prompts on the accelerator."""
        return self.prompts_here > 0

    @property
    def elsewhere(self) -> Elsewhere:
        """Layers that are not resident."""
        return Elsewhere(
            self.streamed, self.on_cpu, self.how, self.on_disk, self.mlps, self.embedding,
            self.experts,
        )  # fmt: skip

    @property
    def rows(self) -> int:
        """Requests that run at once."""
        return self.device_rows + self.host_rows

    @property
    def kv_placement(self) -> KVPlacement:
        """What the engine is told: `host` if the plan puts no request's KV elsewhere."""
        elsewhere = self.device_rows or self.device_share
        return "host" if self.host_rows and not elsewhere else "auto"

    @property
    def max_host_seqs(self) -> int:
        """Likewise: requests that lie on the host for want of room, beside others that do not."""
        whole = self.kv_placement == "auto" and not self.device_share
        return self.host_rows if whole else 0

    @property
    def max_device_seqs(self) -> int:
        """Likewise: those that lie on the accelerator beside others on the host, whose number one
        that outgrew its place there would raise.
        """
        return self.device_rows if self.max_host_seqs else 0

    def with_elsewhere(self, elsewhere: Elsewhere) -> "Candidate":
        """The same requests with other layers elsewhere."""
        return Candidate(
            self.strategy, elsewhere.streamed, self.device_rows, self.host_rows, self.device_share,
            elsewhere.on_cpu, elsewhere.how, elsewhere.on_disk, elsewhere.mlps, self.passes,
            elsewhere.embedding, elsewhere.experts, self.step_tokens, self.prompts_here,
        )  # fmt: skip

    def hosted(self) -> "Candidate":
        """The same without requests on the accelerator; a cohort has nothing to pass beside then,
        and takes as long for a layer in sweeps of its own.
        """
        if self.halves:
            return self
        strategy = "rendezvous" if self.has_cohorts else self.strategy
        return self._replace(strategy=strategy, device_rows=0, passes=0)

    def idle(self) -> "Candidate":
        """The same without requests."""
        return self._replace(device_rows=0, host_rows=0, device_share=0.0, prompts_here=0)

    def between_tokens(self) -> "Candidate":
        """Of halves, in a sweep that reads prompts alone."""
        return self.idle()._replace(strategy="gpu-only", passes=0)

    def in_every_sweep(self) -> int:
        """Rows of which each sweep decodes a token: all but those of a cohort."""
        return self.device_rows if self.has_cohorts else self.rows

    def served(self, num_layers: int) -> float:
        """Tokens that a sweep decodes."""
        return self.device_rows + self.host_rows / self.sweeps_per_hosted_token(num_layers)

    @property
    def has_cohorts(self) -> bool:
        """Whether requests on the host cross sweeps together."""
        return self.strategy in _COHORTS

    @property
    def halves(self) -> bool:
        """Whether all requests are in two cohorts that both take part in every sweep."""
        return self.strategy == "symmetric"

    @property
    def ahead(self) -> bool:
        """Whether both cohorts join every sweep."""
        return self.strategy == "rendezvous-ahead" and self.device_rows > 0

    @property
    def needs_rows_beside(self) -> bool:
        """Whether its cohorts go beside rows on the accelerator; without any, they are as `hosted`
        makes of them.
        """
        return self.strategy == "rendezvous-ahead" or (self.passes > 0 and not self.halves)

    @property
    def num_cohorts(self) -> int:
        """One if there is nothing to sweep beside it: a sweep then waits for its attention."""
        if self.strategy not in _COHORTS:
            return 0
        return COHORTS if self.device_rows or self.halves else 1

    @property
    def cohort_rows(self) -> int:
        """Of the rows on the host, those of a cohort."""
        return -(-self.host_rows // self.num_cohorts) if self.num_cohorts else 0

    def sweeps_per_hosted_token(self, num_layers: int) -> int:
        """Sweeps in which a row on the host gets a token; cohorts take turns to advance in each, by
        a layer or, with passes, by several, or all do by a layer.
        """
        if self.strategy not in _COHORTS:  # tens of thousands are asked
            return 1
        if self.halves:
            return len(token_sweeps(num_layers, self.passes))
        if self.ahead:
            return num_layers + _EDGES_AHEAD
        if self.passes:
            return self.num_cohorts * len(token_sweeps(num_layers, self.passes))
        edges = _EDGES_BESIDE if self.device_rows else _EDGES_ALONE
        return self.num_cohorts * num_layers + edges

    def sweeps_beside_prompts(self, num_layers: int) -> int:
        """Likewise, while prompts are read. Halves begin their next token when the last one is
        known; by then a sweep has been submitted without them, if there is anything for it.
        """
        sweeps = self.sweeps_per_hosted_token(num_layers)
        return sweeps + 1 if self.halves else sweeps

    def placement(self, model: ModelSpec) -> tuple[WeightPlacement, ...]:
        """Homes of all layers."""
        return self.elsewhere.placement(model.num_layers, model.dense_layers)

    def cpu_rules(self, model: ModelSpec, places: int) -> tuple[CpuRule, ...]:
        """Steps of streamed layers that the CPU computes: those of no more tokens than requests may
        run, more of which may decode than are planned.
        """
        return self.elsewhere.rules(model.num_layers, places, model.dense_layers)

    def describe(self, num_layers: int) -> str:
        """One line for people."""
        weights = self.elsewhere.describe(num_layers)
        parts = [f"{_requests(self.device_rows)} on the accelerator"] if self.device_rows else []
        if self.host_rows:
            parts.append(self._hosted())
        return f"{self.strategy}: {weights}, {' + '.join(parts)}{self.steps_text}"

    @property
    def steps_text(self) -> str:
        """For people, behind the rest of it: their size, if it is not the usual one."""
        return f", steps of at most {self.step_tokens} tokens" if self.step_tokens else ""

    def _hosted(self) -> str:
        if self.device_share:
            requests, whose = _requests(self.host_rows), "its" if self.host_rows == 1 else "their"
            share, rest = f"{self.device_share:.0%}", "the rest"
            if self.device_share > 0.995:
                share, rest = "all", "of longer ones the rest"
            return (
                f"{requests} with {share} of {whose} KV on the accelerator, {rest} on the host, "
                "attended in both"
            )
        how = "in cohorts" if self.has_cohorts else "beside it"
        if self.ahead:
            how += " that join every sweep"
        if self.halves:
            how = "in two halves that take turns at each layer"
        elif self.passes:
            how += f" with {self.passes} passes a sweep"
        read = ", prompts on the accelerator" if self.reads_here else ""
        return f"{self.host_rows} on the host, attended there {how}{read}"


def joined_ahead(num_layers: int) -> float:
    """Of all sweeps, the share that a cohort joins which is ahead."""
    return num_layers / (num_layers + _EDGES_AHEAD)


def shared_stages(model: ModelSpec, *, ahead: bool) -> float:
    """Layers per sweep whose stages a cohort without passes of its own shares with the others, in
    the mean; of models with two kinds of layers, at most one is counted.
    """
    layers = model.num_layers
    shared = COHORTS * joined_ahead(layers) if ahead else 1.0
    return min(1.0, shared) if model.dense_layers else shared


def candidate_of(
    strategy: Strategy,
    elsewhere: Elsewhere,
    device: int,
    hosted: int,
    passes: int = 0,
    step_tokens: int = 0,
    *,
    prompts_here: int = 0,
) -> Candidate:
    """With rows on the accelerator and on the host."""
    return Candidate(
        strategy, elsewhere.streamed, device, hosted, 0.0, elsewhere.on_cpu, elsewhere.how,
        elsewhere.on_disk, elsewhere.mlps, passes, elsewhere.embedding, elsewhere.experts,
        step_tokens, prompts_here,
    )  # fmt: skip


def numbers_of_passes(num_layers: int) -> list[int]:
    """That cohorts may have in a sweep, the most first: one beside every layer."""
    return [num_layers // layers for layers in _LAYERS_TO_A_PASS if num_layers >= layers]


def _requests(count: int) -> str:
    return "1 request" if count == 1 else f"{count} requests"
