"""What the programmes of one question share: prices, sizes and the solver."""

import math
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from tandem.cost.rates import accelerator_rates
from tandem.cost.stage import embedding_cost, head_cost, sampling_cost
from tandem.plan.interposition import Visit, own_visits, token_sweeps
from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.candidate import (
    COHORTS,
    Candidate,
    candidate_of,
    joined_ahead,
    shared_stages,
)
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.footprint import Footprint
from tandem.planner.held_blocks import least_mean, may_run_more
from tandem.planner.passing import LEAST_PROMPTS_HERE, LEAVING_SWEEPS, passing_sweeps
from tandem.planner.places import places_of
from tandem.planner.prompt_pace import finished_per_sweep
from tandem.planner.question import Question
from tandem.planner.relaxation.attention_prices import AttentionPrices, attention_prices
from tandem.planner.relaxation.ended import Between, Served, decoding_per_sweep, ended_per_sweep
from tandem.planner.relaxation.layer_prices import LayerPrices
from tandem.planner.relaxation.mean_rows import beyond
from tandem.planner.relaxation.rows import Rows
from tandem.planner.relaxation.sweep_kinds import Span, SweepKind, alone_kinds, steady_kinds
from tandem.planner.relaxation.way import Way
from tandem.planner.relaxation.way_shares import WayShares

if TYPE_CHECKING:
    from tandem.planner.relaxation.fixed_costs import FixedCosts, FixedKey
    from tandem.planner.relaxation.solver import Solver

ServedKey = tuple[int, float, Rows]


class Prices:
    """Of one question.

    Args:
        executed: bound what is executed, as closely as is known: as many requests as memory holds
            in the mean, where more may run than a plan counts, and rows that programmes leave out
            with whose shares searches begin (`loads`).

    Attributes:
        layers_of: number of layers by window. row_bytes: KV of a request in the mean over its time.
        rows_vary: what requests hold decides how many run, so that numbers of rows are means.
        fixed_costs: found so far, of ways wherever prompts are read.
    """

    def __init__(self, question: Question, footprint: Footprint, *, executed: bool = False) -> None:
        self.question, self.footprint = question, footprint
        self.layer = LayerPrices(question, footprint)
        windows = question.model.layer_windows
        self.layers_of = {window: windows.count(window) for window in sorted(set(windows))}
        self.attention = {
            window: attention_prices(question, footprint.page, window) for window in self.layers_of
        }
        self.executed = executed
        self.rows_vary = executed and may_run_more(question, footprint.held)
        self.row_bytes = footprint.row_bytes
        if self.rows_vary:
            self.row_bytes = least_mean(question.lengths, question.block_size)
            self.row_bytes *= footprint.block_bytes
        self._dense = len(question.model.dense_layers)
        self._shares: dict[Way, WayShares] = {}
        self._ends_s: dict[tuple[int, int], float] = {}
        self._sweeps_per_token: dict[Way, int] = {}
        self._fixed_bytes: dict[tuple[Way, int, int, int], int] = {}
        # of ways that serve as much
        self._kinds: dict[tuple[ServedKey, bool], list[list[SweepKind]]] = {}
        self._spans: dict[ServedKey, Span] = {}
        self._decoding: dict[Rows, Between] = {}
        self._held_bytes: dict[tuple[int, Rows], int] = {}
        self.fixed_costs: dict[FixedKey, FixedCosts] = {}
        self._device = accelerator_rates(question.hardware, question.precision.activations)

    @cached_property
    def solver(self) -> "Solver":
        """Which few need, of those who import this: it takes as long to import as all the rest."""
        from tandem.planner.relaxation.solver import Solver

        return Solver()

    def shares(self, way: Way) -> WayShares:
        """What all programmes of a way begin with."""
        if way not in self._shares:
            self._shares[way] = WayShares(way, self.layers_of, self.attention, self._dense)
        return self._shares[way]

    def fixed_bytes(self, way: Way, through: int, cohort: int, step_tokens: int) -> int:
        """On the accelerator, beside layers and KV."""
        key = way, through, cohort, step_tokens
        if key not in self._fixed_bytes:
            self._fixed_bytes[key] = self._find_fixed_bytes(*key)
        return self._fixed_bytes[key]

    def _find_fixed_bytes(self, way: Way, through: int, cohort: int, step_tokens: int) -> int:
        footprint = self.footprint
        slots = STREAM_SLOTS if way.streams and not way.shares_mixtures else 0
        slot_bytes = footprint.mlp_bytes if way.streams_mlps else footprint.layer_bytes
        candidate = candidate_of(way.strategy, Elsewhere(), through, cohort)
        workspace = footprint.workspace(
            way.strategy,
            through + cohort,
            step_tokens,
            device_rows=through,
            cohorts=(candidate.num_cohorts, candidate.cohort_rows),
        )
        return footprint.outside_bytes + slots * slot_bytes + workspace

    def held_bytes(self, count: int, rows: Rows) -> int:
        """KV that so many requests in one tier want at least, whatever the size of its pool.

        Args:
            rows: all that run, of which these are some.
        """
        key = count, rows
        found = self._held_bytes.get(key)
        if found is None:
            found = self._held_bytes[key] = self._find_held_bytes(count, rows)
        return found

    def _find_held_bytes(self, count: int, rows: Rows) -> int:
        fewest = rows.through.least + rows.cohort.least
        largest = rows.through.most + rows.cohort.most
        followed = largest < self.question.lengths.requests
        reading = all(
            places_of(self.question, every, rows.step_tokens) > every for every in (fewest, largest)
        )
        wants = self.footprint.held.wants(count)
        # a pool has at least what they want without a reserve, which is a share of it
        pool = wants.of(0, followed=followed, reading=reading)
        return self.footprint.block_bytes * wants.of(pool, followed=followed, reading=reading)

    def ends_s(self, tokens: int, logits: int) -> float:
        """Before and after the layers."""
        key = tokens, logits
        if key not in self._ends_s:
            self._ends_s[key] = self.embedded_s(tokens) + self.sampled_s(logits)
        return self._ends_s[key]

    def embedded_s(self, tokens: int) -> float:
        """Before the layers."""
        question = self.question
        activations = question.precision.activations
        return embedding_cost(question.model, tokens, activations, self._device).total_s

    def sampled_s(self, logits: int) -> float:
        """After the layers, of so many rows of logits, at least one."""
        model, weights = self.question.model, self.question.precision.weights
        head = head_cost(model, logits, weights, self._device)
        return head.total_s + sampling_cost(model, logits, self._device).total_s

    def cohort_s(self, way: Way, rows: int) -> float:
        """On the CPU, the attention of a sweep's layers."""
        return self._attended(way, rows, lambda each: max(line.at(rows) for line in each.host))

    def cohort_bytes(self, way: Way, rows: int) -> float:
        """Likewise, in the host's memory, what it reads and its copies."""
        return self._attended(
            way, rows, lambda each: each.host_bytes.at(rows) + each.copied_bytes.at(rows)
        )

    def _attended(self, way: Way, rows: int, value: Callable[[AttentionPrices], float]) -> float:
        """Of a cohort's attention in one sweep: one layer, of several windows the one of least; or,
        with passes, and where all cohorts join, all layers over the sweeps of a token.
        """
        if not rows:
            return 0.0
        if not (way.passes or way.ahead):
            return min(map(value, self.attention.values()))
        every = sum(count * value(self.attention[w]) for w, count in self.layers_of.items())
        if way.ahead:
            layers = self.question.model.num_layers
            return every / layers * COHORTS * joined_ahead(layers)
        return every * _taking_part(way) / len(self._token(way))

    def sharing_s(self, way: Way, tokens: int, rows: int) -> float:
        """On the accelerator, by how much longer stages take that a cohort shares with others.

        It has all its stages there, whoever attends to it: those of one layer, or of two cohorts'
        layers, are of so many `rows` more than the sweep's `tokens`. They read the same weights,
        so that this is next to nothing where few rows are bound by memory, and as much as any
        rows' stages where arithmetic is.
        """
        if not rows or way.passes:
            return 0.0
        each = [
            self.layer.of(home, tokens + rows).chain_s - self.layer.of(home, tokens).chain_s
            for home in way.homes
        ]
        dense = len(self.question.model.dense_layers)
        if dense:
            each.append((self.layer.dense_s(tokens + rows) - self.layer.dense_s(tokens)) / dense)
        return shared_stages(self.question.model, ahead=way.ahead) * min(each)

    def beside_passes_s(self, way: Way, through: float, cohort: int) -> float:
        """On the accelerator, outside stages that rows share: a sweep's passes of a cohort's own,
        and the attention of the others.
        """
        passes = own_visits(self.question.model.num_layers, way.passes) * _taking_part(way)
        dense = len(self.question.model.dense_layers)
        each_s = self.layer.of("resident", cohort).chain_s
        if dense:
            each_s = min(each_s, self.layer.dense_s(cohort) / dense)
        attention_s = sum(
            count * max(line.at(through) for line in self.attention[window].device)
            for window, count in self.layers_of.items()
        )
        return passes / len(self._token(way)) * each_s + (attention_s if through else 0.0)

    def _token(self, way: Way) -> tuple[tuple[Visit, ...], ...]:
        return token_sweeps(self.question.model.num_layers, way.passes)

    def one_layer_s(self, way: Way, rows: int) -> float:
        """Of a cohort that goes alone: a layer's stages, attention and its copies."""
        every_s = [self.layer.of(home, rows).chain_s for home in way.homes]
        dense = len(self.question.model.dense_layers)
        stages_s = min(*every_s, self.layer.dense_s(rows) / dense) if dense else min(every_s)
        copies_s = min(each.copies.at(rows) for each in self.attention.values())
        return stages_s + self.cohort_s(way, rows) + copies_s

    def sweeps_per_token(self, way: Way) -> int:
        """Of the slowest row."""
        if way not in self._sweeps_per_token:
            sweeps = _like(way, 1).sweeps_per_hosted_token(self.question.model.num_layers)
            self._sweeps_per_token[way] = sweeps
        return self._sweeps_per_token[way]

    def advancing(self, way: Way, cohort: int) -> int:
        """Of all rows in cohorts, those that a sweep takes one layer further."""
        return _like(way, cohort).cohort_rows

    def served(self, way: Way, through: float, cohort: int) -> float:
        """Tokens that a sweep decodes."""
        if not cohort:
            return float(through)
        return through + cohort / self.sweeps_per_token(way)

    def decoding(self, rows: Rows) -> float:
        """Of the rows that take part in all layers, those of which a sweep decodes a token."""
        return self._decode(rows).least

    def _decode(self, rows: Rows) -> Between:
        found = self._decoding.get(rows)
        if found is None:
            found = self._decoding[rows] = decoding_per_sweep(self.question, rows)
        return found

    def span(self, way: Way, rows: Rows) -> Span:
        """Tokens of a sweep, of a range of rows; some places read prompts."""
        key = self.served_key(way, rows)
        found = self._spans.get(key)
        if found is None:
            found = self._spans[key] = self._find_span(way, rows)
        return found

    def served_key(self, way: Way, rows: Rows) -> ServedKey:
        """What tokens of sweeps hang on."""
        return self.sweeps_per_token(way), beyond(self, way, rows), rows

    def _find_span(self, way: Way, rows: Rows) -> Span:
        through, cohort = rows.through, rows.cohort
        served = Served(
            self.served(way, through.least, cohort.least),
            self.served(way, through.most, cohort.most),
            self.served(way, through.most, cohort.least),
        )
        decoding = self._decode(rows)
        ended = ended_per_sweep(self.question, rows, served)
        sweeps, more = self.question.lengths.decode_sweeps, beyond(self, way, rows)
        return Span(
            ended.least * sweeps,
            ended.most * sweeps * (1 + more / served.most),
            math.floor(decoding.least),
            math.ceil(decoding.most),
        )

    def kinds(self, way: Way, rows: Rows) -> list[list[SweepKind]]:
        """Of sweeps; all rows in the ranges take at least the time of one of the lists."""
        bounded = self.question.tpot_bound_s is not None
        key = self.served_key(way, rows), bounded and way.reads_here
        found = self._kinds.get(key)
        if found is None:
            found = self._kinds[key] = self._find_kinds(way, rows)
        return found

    def _find_kinds(self, way: Way, rows: Rows) -> list[list[SweepKind]]:
        if self.question.objective == "latency":
            return [alone_kinds(self.question, rows.step_tokens)]
        span, read = self.span(way, rows), 1.0
        if self.question.tpot_bound_s is not None:
            read = self._least_read(way, rows, span)
        return steady_kinds(self.question, span, rows.step_tokens, read)

    def _least_read(self, way: Way, rows: Rows, span: Span) -> float:
        """Of the prompts that would be read in a sweep if none waited for others, at least so large
        a share is.
        """
        question, lengths = self.question, self.question.lengths
        room = max(1, question.step_of(rows.step_tokens) - span.most_decoding)
        decoding = lengths.later_tokens * self.sweeps_per_token(way) + 1
        reading = lengths.prompt_tokens / room
        if way.reads_here:
            decoding += LEAVING_SWEEPS
            sweeps = passing_sweeps(lengths.prompt_tokens, room)
            reading = max(reading, sweeps / LEAST_PROMPTS_HERE)
        least = rows.through.least + rows.cohort.least
        ended = finished_per_sweep(max(1, least), decoding, reading)
        return min(1.0, ended * lengths.decode_sweeps / span.least_served)


def _taking_part(way: Way) -> int:
    """Cohorts in a sweep."""
    return 2 if way.halves else 1


def _like(way: Way, cohort: int) -> Candidate:
    return Candidate(way.strategy, 0, 0 if way.alone else 1, cohort, passes=way.passes)
