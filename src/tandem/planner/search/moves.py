"""Small moves of a candidate: rows on the host and their prompts here, layers elsewhere."""

from collections.abc import Iterator

from tandem.plan.disk_slots import SLOTS
from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.candidate import Candidate, candidate_of
from tandem.planner.elsewhere import Elsewhere
from tandem.planner.prompt_pace import PromptPace
from tandem.planner.search.candidates import Candidates
from tandem.planner.search.tile_edges import at_tile_edges
from tandem.spec.model import ModelSpec

_FACTORS = (0.8, 0.93, 0.98, 1.02, 1.07, 1.25)
_MORE_HERE = (0.6, 0.8, 1.25, 1.6)
_MORE_STREAMED = (-1, 1, -2, 2)
_MORE_LENT = (-1, 1, -8, 8)
_MORE_EXPERTS = (-1, 1, -4, 4)


class Moves:
    """Moves among candidates of a model.

    Args:
        pace: of prompts beside a candidate's rows.
        tile_rows: that the accelerator's linear maps compute at a time.
        in_time: whether time per token has a bound, which more rows may break than have room.
    """

    def __init__(
        self,
        candidates: Candidates,
        model: ModelSpec,
        pace: PromptPace,
        tile_rows: int,
        *,
        in_time: bool = False,
    ) -> None:
        self._candidates, self._pace, self._tile_rows = candidates, pace, tile_rows
        self._in_time = in_time
        self._layers = model.num_layers - len(model.dense_layers)
        self._experts = 0 if model.experts is None else model.experts.count

    def of(self, candidate: Candidate) -> Iterator[Candidate]:
        """Candidates nearby, in steps of the same size; the rows on the accelerator, if there are
        any, are as many as fit, or as fill tiles; or, where time per token has a bound, about as
        many as there were.
        """
        if self._tile_rows > 1:
            pace = self._pace.of(candidate)
            if pace.finished <= 1 or self._pace.lengths.prompts_are_rows:  # see `Demands`
                for edge in at_tile_edges(candidate, self._tile_rows, pace.chunk, pace.finished):
                    yield edge
                    if edge.host_rows != candidate.host_rows:
                        yield from self._with_most_here(edge)
        step = candidate.step_tokens
        for elsewhere, factor, more_here in self._steps(candidate):
            hosted = round(candidate.host_rows * factor)
            if candidate.device_share and hosted:
                yield self._candidates.split(elsewhere, hosted, step)
                continue
            strategy, passes, device = candidate.strategy, candidate.passes, 0
            here = self._candidates.prompts_here_of(candidate, hosted, more_here)
            if candidate.device_rows:
                most = self._candidates.most_on_device
                device = most(
                    strategy,
                    elsewhere,
                    hosted,
                    passes=passes,
                    step_tokens=step,
                    prompts_here=here,
                )
            moved = candidate_of(
                strategy, elsewhere, device, hosted, passes, step, prompts_here=here
            )
            if moved.rows and moved != candidate and (device or not moved.needs_rows_beside):
                yield moved
            if self._in_time and 0 < candidate.device_rows < device and factor != 1.0:
                yield moved._replace(device_rows=candidate.device_rows)
        if self._in_time and candidate.device_rows:
            yield from _with_other_rows(candidate)

    def _with_most_here(self, edge: Candidate) -> Iterator[Candidate]:
        """With as many on the accelerator as fit beside its cohorts, if that is another number:
        where prompts fill steps, they fill tiles however many these are.
        """
        rows = self._candidates.most_on_device(
            edge.strategy,
            edge.elsewhere,
            edge.host_rows,
            passes=edge.passes,
            step_tokens=edge.step_tokens,
            prompts_here=edge.prompts_here,
        )
        if rows and rows != edge.device_rows:
            yield edge._replace(device_rows=rows)

    def _steps(self, candidate: Candidate) -> Iterator[tuple[Elsewhere, float, float]]:
        """What is elsewhere, and times the requests on the host, and the prompts read for them."""
        here = candidate.elsewhere
        for factor in _FACTORS if candidate.host_rows else ():
            yield here, factor, 1.0
        for more_here in _MORE_HERE if candidate.reads_here else ():
            yield here, 1.0, more_here
        for there in self.elsewheres(here):
            if there != here and not candidate.passes:
                yield there, 1.0, 1.0
        if candidate.reads_here and here.streamed and not (here.on_disk or here.experts):
            # more requests have more prompts here, for which a layer may have to make room
            for more in (1, 2):
                if here.streamed + more <= self._layers:
                    yield here._replace(streamed=here.streamed + more), max(_FACTORS), 1.0

    def elsewheres(self, here: Elsewhere) -> Iterator[Elsewhere]:
        """A few more or fewer layers elsewhere, lent, or read from disk, or experts resident."""
        if here.read_in_place:
            for count in (here.on_disk - 1, here.on_disk + 1):
                if SLOTS < count <= self._layers:
                    yield here._replace(on_disk=count)
            return
        if here.experts:
            yield from self._with_experts(here)
            return
        if here.on_cpu and here.how != "host":
            yield from self._candidates.otherwise_on_cpu(here)
            for count in (here.on_cpu - 1, here.on_cpu + 1):
                if 0 < count <= self._layers - here.streamed:
                    read = here.on_disk + count - here.on_cpu if here.read_on_cpu else here.on_disk
                    yield here._replace(on_cpu=count, on_disk=max(0, read))
            for read in (here.on_disk - 1, here.on_disk + 1) if here.read_on_cpu else ():
                if read <= here.on_cpu:
                    yield here._replace(on_disk=read)
            return
        for more in _MORE_STREAMED:
            streamed = here.streamed + more
            if STREAM_SLOTS < streamed <= self._layers or (streamed == 0 and not here.mlps):
                every = here.on_cpu and here.on_cpu == here.may_be_lent
                read = max(0, here.on_disk + streamed - here.streamed) if here.on_disk else 0
                there = here._replace(streamed=streamed, on_disk=read)
                yield there.lending(streamed if every else here.on_cpu)
        for more in _MORE_LENT if here.on_cpu else ():
            yield here.lending(here.on_cpu + more)
        for read in (here.on_disk - 1, here.on_disk + 1) if here.on_disk else ():
            if read <= here.streamed:
                yield here._replace(on_disk=read).lending(here.on_cpu)

    def _with_experts(self, here: Elsewhere) -> Iterator[Elsewhere]:
        """More or fewer of each mixture's experts on the accelerator, or of the others lent."""
        for more in _MORE_EXPERTS:
            if 0 < here.experts + more < self._experts:
                yield here._replace(experts=here.experts + more)
        for more in _MORE_LENT if here.lent else ():
            yield here.lending(here.on_cpu + more)


def _with_other_rows(candidate: Candidate) -> Iterator[Candidate]:
    """On the accelerator, a few more or fewer, and the same on the host."""
    for factor in _FACTORS:
        rows = round(candidate.device_rows * factor)
        if rows != candidate.device_rows:
            yield candidate._replace(device_rows=rows)
