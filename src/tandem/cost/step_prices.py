"""What a step is predicted to take, from a few sums: a price list that is put together once.

A step is a sweep over all layers. Per layer the accelerator does the linear stages of the main
lane's tokens and attends to what it holds; rows with KV on the host have their queries brought
there and attended meanwhile, and the layer goes on when both are done. Cohorts share the stages of
a layer with the main lane, or have a pass of their own; the CPU attends to them beside all this,
one attention after the other. Against the same programs in virtual time the sums leave out what
queues do to each other within a layer; on real ones, hand-overs between threads, until these are
learnt (`HandOvers`).
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from tandem.cost.hand_overs import NO_HAND_OVERS, HandOver, HandOvers, kind_of
from tandem.cost.page_price import PagePrice
from tandem.cost.staircase import Staircase
from tandem.cost.step_sides import StageTimes, StepSides


class TierWork(NamedTuple):
    """Attention over the keys of one tier, in one layer.

    Attributes:
        queries: query tokens. keys: cached tokens, once per sequence. pairs: of a query token and a
            key that it sees.
    """

    queries: int = 0
    keys: float = 0.0
    pairs: float = 0.0


class CohortWork(NamedTuple):
    """A cohort's part in a sweep, if its attention is always ready in time.

    Attributes:
        keys: of its rows on the host, in one layer.
        visits: layers that it leaves behind: in the mean of all sweeps, or in one that it crosses.
        passes: of those visits, the ones apart from the main lane.
        tokens: that each of its rows gets, in the mean of all sweeps.
    """

    rows: int
    keys: float
    visits: float = 0.0
    passes: float = 0.0
    tokens: float = 0.0


class StepWork(NamedTuple):
    """All that a step's time depends on.

    Attributes:
        decodes: rows of the main lane that decode. prompts: tokens of prompts beside them.
        logits: rows whose logits are wanted.
    """

    decodes: int
    prompts: int
    logits: int
    device: TierWork
    host: TierWork
    cohorts: tuple[CohortWork, ...] = ()


class TermTimes(NamedTuple):
    """Seconds of one step; 0: it has none of that, or nothing is known.

    Attributes:
        linear_s: the accelerator's stages. attention_s: its attention and appends. host_s: the
            CPU's.
    """

    linear_s: float = 0.0
    attention_s: float = 0.0
    host_s: float = 0.0


class StepForecast(NamedTuple):
    """A step as it is predicted.

    Attributes:
        decoded: tokens that it generates; a cohort's, in the mean of the sweeps that they take.
        prompts: tokens of prompts that it reads.
        attended_s: the CPU's attention, all of it.
        kind: how it hands work to the host. hand_over_s: what is counted for that, within its time.
    """

    time_s: float
    decoded: float
    prompts: int
    attended_s: float
    kind: HandOver = HandOver.NONE
    hand_over_s: float = 0.0

    def useful_tokens_per_s(self, prompt_weight: float) -> float:
        """Tokens, those of prompts at `prompt_weight` of a generated one; 0 of a step that only
        moves KV, which takes no time of its own.
        """
        useful = self.decoded + prompt_weight * self.prompts
        return useful / self.time_s if self.time_s else 0.0


_MOST_KNOWN = 4096


@dataclass(frozen=True, slots=True)
class AttentionPrice:
    """Of one layer's attention over the keys of one tier.

    Attributes:
        start_s: whatever the work. key_s, pair_s: reading and computing overlap. query_s: beside
            both.
    """

    start_s: float
    key_s: float
    pair_s: float
    query_s: float

    def seconds(self, work: TierWork) -> float:
        """0 where there is nothing to attend to."""
        if not work.queries:
            return 0.0
        return self.busy_seconds(work.queries, work.keys, work.pairs)

    def busy_seconds(self, queries: int, keys: float, pairs: float) -> float:
        """Of some queries at least."""
        busy_s = max(keys * self.key_s, pairs * self.pair_s)
        return self.start_s + busy_s + queries * self.query_s


@dataclass(frozen=True, slots=True)
class StepPrices:
    """Of one engine's steps.

    Attributes:
        num_layers: of the model.
        windows: positions that layers see (0: all), and which share of the layers does.
        linear: linear stages of all layers by tokens, wherever the layers lie, with the embedding.
        layer: one layer's on the accelerator, of a cohort's own pass.
        head: logits and sampling by rows.
        device: attention on the accelerator, with what appends to its pages.
        host: attention on the CPU, with what appends there.
        link: queries to the host and results back, by query tokens.
        merge: two partial results, by query tokens.
        pages: copies of KV blocks between the tiers.
        launch_s: from submission to the start, where nothing hides it.
        max_join_wait_s: how long a sweep may wait for a cohort.
        hand_overs: what steps with a part on the host were found to take beyond all this.
    """

    num_layers: int
    windows: tuple[tuple[int, float], ...]
    linear: Staircase
    layer: Staircase
    head: Staircase
    device: AttentionPrice
    host: AttentionPrice
    link: Staircase
    merge: Staircase
    pages: PagePrice
    launch_s: float
    max_join_wait_s: float
    hand_overs: HandOvers = NO_HAND_OVERS
    _known_prompts: dict[int, float] = field(
        init=False, repr=False, compare=False, default_factory=lambda: {}
    )
    _known_stages: dict[tuple[int, int], StageTimes] = field(
        init=False, repr=False, compare=False, default_factory=lambda: {}
    )

    def forecast(self, work: StepWork) -> StepForecast:
        """Time and tokens of a step."""
        tokens = work.decodes + work.prompts
        riding_s, cohorts_s = self.host.seconds(work.host), self._cohorts_s(work)
        time_s = self.launch_s + self._main_s(work, riding_s)
        time_s += sum([self._stages_s(each, tokens) for each in work.cohorts])
        done = 1.0
        if not tokens:  # nothing hides it: the sweep waits for attention without a bound
            time_s += cohorts_s + sum(
                [each.visits * self.link.at(each.rows) for each in work.cohorts]
            )
        elif riding_s:  # one queue: rows that ride along wait for what stands before them
            time_s += cohorts_s
        elif cohorts_s > time_s:
            time_s += min(self.max_join_wait_s, cohorts_s - time_s)
            done = min(1.0, time_s / cohorts_s)
        advanced = done * sum([each.rows * each.tokens for each in work.cohorts])
        attended_s = self.num_layers * riding_s + done * cohorts_s
        kind = kind_of(work.host.queries > 0, not work.prompts, bool(work.cohorts))
        hand_over_s = self.hand_overs.step_s(kind, self.num_layers)
        return StepForecast(
            time_s + hand_over_s,
            work.decodes + advanced,
            work.prompts,
            attended_s,
            kind,
            hand_over_s,
        )

    def sides(self, work: StepWork) -> StepSides:
        """What each has to do in a sweep that all cohorts cross."""
        riding_s, tokens = self.host.seconds(work.host), work.decodes + work.prompts
        stages_s = tuple([self._stages_s(each, tokens) for each in work.cohorts])
        cpu_s = self.num_layers * riding_s + self._cohorts_s(work)
        return StepSides(cpu_s, self._main_s(work, riding_s), stages_s)

    @staticmethod
    def late_s(sides: StepSides) -> float:
        """How long the CPU goes on attending once the accelerator has done its part; negative: it
        is done before.
        """
        return sides.cpu_s - sides.main_s - sum(sides.stages_s)

    def keeps_pace(self, sides: StepSides) -> bool:
        """Whether it is done by then where cohorts have passes of their own, each of whose
        attentions has the time in which the accelerator is at the others' stages, and as long as a
        sweep may wait: else the first pass is refused, and those after it with that.
        """
        stages_s = sides.stages_s
        others_s = sum(stages_s) - max(stages_s, default=0.0)
        return sides.cpu_s <= sides.main_s + others_s + self.max_join_wait_s

    def terms(self, work: StepWork) -> TermTimes:
        """What the main lane's operations take by themselves, whatever hides what."""
        tokens, layers = work.decodes + work.prompts, self.num_layers
        linear_s = self.linear.at(tokens) + self.head.at(work.logits)
        if work.host.queries:
            linear_s += layers * self.merge.at(tokens)
        return TermTimes(
            linear_s,
            layers * self.device.seconds(work.device),
            layers * self.host.seconds(work.host),
        )

    def prompt_on_host_s(self, tokens: int) -> float:
        """What attending to a whole prompt on the host costs beyond doing so on the accelerator."""
        known = self._known_prompts.get(tokens)
        if known is None:
            if len(self._known_prompts) >= _MOST_KNOWN:
                self._known_prompts.clear()
            work = TierWork(tokens, tokens, tokens * (tokens + 1) / 2)
            on_host_s = self.host.seconds(work) + self.link.at(tokens)
            beyond_s = max(0.0, on_host_s - self.device.seconds(work))
            known = self._known_prompts[tokens] = self.num_layers * beyond_s
        return known

    def cohort_attention_s(self, cohort: CohortWork) -> float:
        """The CPU's attention of a cohort in one layer."""
        return self.host.busy_seconds(cohort.rows, cohort.keys, cohort.keys) if cohort.rows else 0.0

    def _cohorts_s(self, work: StepWork) -> float:
        return sum([each.visits * self.cohort_attention_s(each) for each in work.cohorts])

    def _main_s(self, work: StepWork, riding_s: float) -> float:
        tokens = work.decodes + work.prompts
        if not tokens:
            return 0.0
        attention_s = self.device.seconds(work.device)
        if riding_s:
            beside_s = riding_s + self.link.at(work.host.queries)
            attention_s = max(attention_s, beside_s) + self.merge.at(tokens)
        layers_s = self.linear.at(tokens) + self.num_layers * attention_s
        return layers_s + self.head.at(work.logits)

    def _stages_s(self, cohort: CohortWork, tokens: int) -> float:
        """What its linear stages add to the accelerator's time."""
        times = self._stage_times(cohort.rows, tokens)
        own, shared = cohort.passes, cohort.visits - cohort.passes
        return own * times.alone_s + shared * times.shared_s + cohort.tokens * times.head_s

    def _stage_times(self, rows: int, tokens: int) -> StageTimes:
        """Of a cohort of so many rows; in a step the same are asked for again and again."""
        known = self._known_stages.get((rows, tokens))
        if known is None:
            if len(self._known_stages) >= _MOST_KNOWN:
                self._known_stages.clear()
            merge_s = self.merge.at(rows)
            shared_s = self.layer.at(tokens + rows) - self.layer.at(tokens)
            known = self._known_stages[rows, tokens] = StageTimes(
                self.layer.at(rows) + merge_s, shared_s + merge_s, self.head.at(rows)
            )
        return known
