"""Which candidates there are: numbers of layers elsewhere, and rows on a fixed grid.

The grid does not depend on the hardware, so that a larger machine's candidates are a smaller one's
and more; what just fits is added to it.
"""

from collections.abc import Iterator, Sequence
from math import ceil, floor

from tandem.plan.disk_slots import SLOTS
from tandem.plan.weights import STREAM_SLOTS
from tandem.planner.candidate import (
    COHORT_STRATEGIES,
    LEAST_COHORT_LAYERS,
    Candidate,
    Strategy,
    candidate_of,
    numbers_of_passes,
)
from tandem.planner.elsewhere import CpuHome, Elsewhere
from tandem.planner.footprint import Footprint
from tandem.planner.passing import LEAST_PROMPTS_HERE, enough_prompts_here
from tandem.planner.policies import Policy
from tandem.planner.question import MAX_ROWS, Question
from tandem.planner.room import MAX_COHORT_ROWS
from tandem.planner.search.row_limits import ANY, Limits, RowLimits

_GRID_RATIO = 1.2
_EXPERT_STEPS = 32  # of a mixture; small moves follow


def row_grid(limit: int) -> list[int]:
    """Numbers of rows up to `limit`, ever further apart, `limit` included."""
    grid: list[int] = []
    rows = 1.0
    while round(rows) < min(limit, MAX_ROWS):
        if not grid or round(rows) > grid[-1]:
            grid.append(round(rows))
        rows *= _GRID_RATIO
    return [*grid, limit] if limit > 0 else []


class Candidates:
    """Enumerates what fits."""

    def __init__(self, question: Question, footprint: Footprint) -> None:
        self._q, self._footprint = question, footprint
        known = question.hardware.host.disk_bytes_per_s is not None
        # where the prompts of requests on the host may be read: there, on the accelerator
        self._ways = (False, True) if question.may_read_here else (False,)
        self._here: dict[tuple[Strategy, int, int], int] = {}
        self._reads = known and (question.host_only or not footprint.holds_weights)

    def of(self, policy: Policy, limits: RowLimits | None = None) -> Iterator[Candidate]:
        """Every candidate that keeps to the policy and to all capacities.

        Args:
            limits: candidates beyond them are left out.
        """
        layers = self._q.movable_layers
        for elsewhere in self.elsewheres():
            served = ANY if limits is None else limits.of(elsewhere, cohorts=False)
            for strategy in policy.strategies:
                none_here = policy.keeps_none_here(strategy)
                for candidate in self._with(strategy, elsewhere, none_here, served):
                    if not policy.allows(candidate, layers):
                        continue
                    if limits is None or limits.allow(candidate):
                        yield candidate

    def elsewheres(self) -> Iterator[Elsewhere]:
        """What may be elsewhere: nothing is, some or all layers are streamed, or some are on the
        CPU; of streamed ones, none is lent to it yet. What host memory does not hold is on disk.
        Embeddings make room for layers, or for requests.
        """
        layers = self._q.movable_layers
        if self._q.host_only:
            counts = range(SLOTS + 1, layers + 1) if self._reads else ()
            in_place = (Elsewhere(on_disk=count) for count in counts)
            yield from self._growing([Elsewhere(), *in_place], 2)
            return
        counts = (0, *range(STREAM_SLOTS + 1, layers + 1))
        plain = [Elsewhere(), *(self._placed(Elsewhere(count)) for count in counts[1:])]
        streamed = self._growing(plain, 1)
        # it is the only one as well where host memory has room for no layer that would make more
        all_rows_fit = streamed == [Elsewhere()] and not self._more_rows_wanted(Elsewhere())
        looked_up = Elsewhere(embedding=True)
        if self._footprint.embedding_bytes and not all_rows_fit and self._has_room(looked_up):
            streamed.insert(0, looked_up)
        every = plain[-1]
        if every not in streamed and self._has_room(every):
            streamed.append(every)
        for elsewhere in streamed:
            yield elsewhere
            yield from self._more_on_disk(elsewhere)
        if all_rows_fit:
            return
        mlps = [self._placed(Elsewhere(count, mlps=True)) for count in counts[1:]]
        yield from self._growing(mlps, 1)
        yield from self._mixtures_in_part()
        in_place = filter(None, map(self._read_on_cpu, range(1, layers + 1)))
        for elsewhere in self._growing(list(in_place), 1):
            yield elsewhere
            yield from self._more_on_disk(elsewhere)
        for how in ("cpu", "cpu-mlp"):
            counts = range(1, layers + 1)
            yield from self._growing(
                [self._placed(Elsewhere(0, count, how)) for count in counts], 1
            )

    def _placed(self, elsewhere: Elsewhere) -> Elsewhere:
        """Layers elsewhere, and embeddings in host memory, if that has room for them: a sweep reads
        a row of them for each token, and of a layer all.
        """
        if self._footprint.embedding_bytes:
            apart = self._least_on_disk(elsewhere._replace(embedding=True))
            if self._has_room(apart):
                return apart
        return self._least_on_disk(elsewhere)

    def _least_on_disk(self, elsewhere: Elsewhere) -> Elsewhere:
        """With as few layers on disk as host memory makes necessary; they are streamed, also those
        that the CPU would compute. The same if none or all would be on disk, and where MLPs are
        streamed, which are not read.
        """
        footprint = self._footprint
        over = -footprint.host_kv_bytes(elsewhere)
        if over <= 0 or not self._reads or elsewhere.mlps or elsewhere.experts:
            return elsewhere
        moved = footprint.mlp_bytes if elsewhere.mlps_on_cpu else footprint.layer_bytes
        count = -(-(over + footprint.disk_slots_bytes) // moved)
        if not elsewhere.on_cpu:
            return elsewhere._replace(on_disk=min(count, elsewhere.streamed))
        if count >= elsewhere.on_cpu:
            return elsewhere
        left = elsewhere.on_cpu - count
        return elsewhere._replace(streamed=count, on_cpu=left, on_disk=count)

    def _mixtures_in_part(self) -> Iterator[Elsewhere]:
        """Of every mixture as many experts on the accelerator as fit, or fewer; the others are
        streamed, or the CPU's.
        """
        experts, layers = self._q.model.experts, self._q.movable_layers
        if experts is None or layers <= STREAM_SLOTS:
            return
        for plain in (Elsewhere(layers, mlps=True), Elsewhere(0, layers, "cpu-mlp")):
            numbers = range(experts.count - 1, 0, -max(1, experts.count // _EXPERT_STEPS))
            every = (plain._replace(experts=kept) for kept in numbers)
            yield from self._growing(list(map(self._placed, every)), 1)

    def _read_on_cpu(self, count: int) -> Elsewhere | None:
        """So many layers on the CPU, as few of them on disk as host memory makes necessary; None if
        none need be, or there is no room.
        """
        footprint = self._footprint
        if not self._reads:
            return None
        for embedding in (True, False) if footprint.embedding_bytes else (False,):
            plain = Elsewhere(0, count, "cpu", embedding=embedding)
            over = -footprint.host_kv_bytes(plain)
            if over <= 0:
                continue
            read = -(-(over + footprint.disk_slots_bytes) // footprint.layer_bytes)
            found = plain._replace(on_disk=read)
            if read <= count and self._has_room(found):
                return found
        return None

    def otherwise_on_cpu(self, here: Elsewhere) -> Iterator[Elsewhere]:
        """About as much on the CPU, MLPs alone for whole layers or the other way round; none
        from disk.
        """
        if here.on_disk:
            return
        share = self._footprint.mlp_bytes / self._footprint.layer_bytes
        how: CpuHome = "cpu-mlp" if here.how == "cpu" else "cpu"
        factor = 1 / share if how == "cpu-mlp" else share
        for count in dict.fromkeys((floor(here.on_cpu * factor), ceil(here.on_cpu * factor))):
            if 0 < count <= self._q.movable_layers - here.streamed:
                yield here._replace(on_cpu=count, how=how)

    def _more_on_disk(self, elsewhere: Elsewhere) -> Iterator[Elsewhere]:
        """In growing steps, while host memory would hold the KV of more rows."""
        step = 2 if elsewhere.on_disk else 4
        most = elsewhere.on_cpu if elsewhere.read_on_cpu else elsewhere.streamed
        while self._reads and elsewhere.on_disk < most and self._more_hosted_wanted(elsewhere):
            more = min(elsewhere.on_disk + step, most)
            elsewhere = elsewhere._replace(on_disk=more)
            step *= 2
            yield elsewhere

    def _more_hosted_wanted(self, elsewhere: Elsewhere) -> bool:
        """Whether the longest request, or one more of them, has no room in both tiers."""
        footprint = self._footprint
        if footprint.longest_blocks > self._blocks(elsewhere):
            return True
        rows = self._most_hosted(elsewhere) + 1
        return rows <= self._q.max_rows and self._q.prompts_keep_up(rows, rows)

    def _growing(self, every: Sequence[Elsewhere], slowness: int) -> list[Elsewhere]:
        """As few as fit, and more in growing steps, until more memory would hold no more rows."""
        fitting = list(filter(self._has_room, every))
        found: list[Elsewhere] = []
        index = 0
        while index < len(fitting):
            found.append(fitting[index])
            if not self._more_rows_wanted(fitting[index]):
                break
            last = len(fitting) - 1
            step = 1 + len(found) // slowness
            index = min(index + step, last) if index < last else last + 1
        return found

    def _more_rows_wanted(self, elsewhere: Elsewhere) -> bool:
        rows = self.most_on_device("gpu-only", elsewhere, 0) + 1
        return rows <= self._q.max_rows and self._q.prompts_keep_up(rows, rows)

    def _has_room(self, elsewhere: Elsewhere) -> bool:
        """For the weights; on the host alone, where KV lies nowhere else, for a row's, too."""
        if self._q.host_only:
            return self.most_on_device("gpu-only", elsewhere, 0, limit=1) > 0
        left = self._footprint.device_kv_bytes("gpu-only", elsewhere, 1)
        return left >= 0 and self._footprint.host_kv_bytes(elsewhere) >= 0

    def _with(
        self, strategy: Strategy, elsewhere: Elsewhere, all_on_host: bool, served: Limits
    ) -> Iterator[Candidate]:
        """Of candidates beyond the limits, some are left out already."""
        if served.none and strategy not in COHORT_STRATEGIES:
            return
        if strategy == "gpu-only":
            yield from self._alone(elsewhere)
            return
        limit = self._most_hosted(elsewhere)
        if strategy in COHORT_STRATEGIES:
            short = self._q.model.num_layers < LEAST_COHORT_LAYERS
            beside = elsewhere.on_cpu or elsewhere.on_disk or elsewhere.experts
            if not self._q.cohorts_are_of_use or short or beside:
                return
            limit = min(limit, MAX_COHORT_ROWS)
        if strategy == "symmetric":
            if not elsewhere.not_resident:
                yield from self._in_halves(elsewhere, limit)
            return
        if strategy == "asymmetric":
            if elsewhere == Elsewhere() and not all_on_host:
                yield from self._with_passes(limit)
            return
        rows = dict.fromkeys(self._ways, 0 if all_on_host else MAX_ROWS)
        for hosted in _thinned(row_grid(limit), elsewhere):
            # more on the host leave no more on the accelerator
            if strategy == "ride-along" and served.exclude(hosted, rows[False] + hosted):
                continue
            rows = self._beside(strategy, elsewhere, hosted, rows)
            if strategy == "rendezvous-ahead" and not rows[False]:
                return
            for reads_here, device in rows.items():
                yield from self._of_rows(strategy, elsewhere, device, hosted, reads_here)

    def _alone(self, elsewhere: Elsewhere) -> Iterator[Candidate]:
        """All requests on the accelerator."""
        least = self._least_on_disk(elsewhere.lending(0)._replace(on_disk=0))
        if not elsewhere.on_cpu and elsewhere.on_disk > least.on_disk + elsewhere.read_in_place:
            return  # host memory that it makes no use of
        if elsewhere.read_on_cpu and self._read_on_cpu(elsewhere.on_cpu) != elsewhere:
            return  # likewise
        for rows in _thinned(row_grid(self.most_on_device("gpu-only", elsewhere, 0)), elsewhere):
            yield candidate_of("gpu-only", elsewhere, rows, 0)

    def _beside(
        self,
        strategy: Strategy,
        elsewhere: Elsewhere,
        hosted: int,
        limits: dict[bool, int],
        passes: int = 0,
    ) -> dict[bool, int]:
        """Most rows on the accelerator beside so many on the host, by whether prompts of these are
        read here, which leaves room for no more.

        Args:
            limits: beside fewer on the host.
        """
        found, most = dict[bool, int](), MAX_ROWS
        for reads_here, limit in limits.items():
            here = self._prompts_here(strategy, hosted, passes) if reads_here else 0
            most = found[reads_here] = self.most_on_device(
                strategy, elsewhere, hosted, min(limit, most), passes, prompts_here=here
            )
        return found

    def _of_rows(
        self, strategy: Strategy, elsewhere: Elsewhere, device: int, hosted: int, reads_here: bool
    ) -> Iterator[Candidate]:
        """With the most on the accelerator beside those on the host, and with none there."""
        here = self._prompts_here(strategy, hosted) if reads_here else 0
        if strategy == "ride-along" or not (device or strategy == "rendezvous-ahead"):
            # one cohort by itself has nothing to be ahead of
            alone = candidate_of(strategy, elsewhere, 0, hosted, prompts_here=here)
            if self._footprint.fits(alone):
                yield alone
        if strategy == "ride-along" and not (device or reads_here):
            split = self.split(elsewhere, hosted)
            if split.device_share and self._footprint.fits(split):
                yield split
        if device:
            yield candidate_of(strategy, elsewhere, device, hosted, prompts_here=here)

    def prompts_here_of(self, candidate: Candidate, hosted: int, factor: float = 1.0) -> int:
        """Places for prompts with so many requests on the host in place of a candidate's: as many
        as they need, and more or fewer as the candidate has, times a factor.
        """
        if not (candidate.reads_here and hosted):
            return 0
        enough = enough_prompts_here(self._q, candidate)
        other = enough_prompts_here(self._q, candidate._replace(host_rows=hosted))
        wanted = round(other * candidate.prompts_here / enough * factor)
        return max(LEAST_PROMPTS_HERE, wanted)

    def _prompts_here(self, strategy: Strategy, hosted: int, passes: int = 0) -> int:
        """As many as such requests need, wherever layers are."""
        key = strategy, hosted, passes
        found = self._here.get(key)
        if found is None:
            beside = strategy != "symmetric"
            like = candidate_of(strategy, Elsewhere(), int(beside), hosted, passes)
            found = self._here[key] = enough_prompts_here(self._q, like)
        return found

    def _with_passes(self, limit: int) -> Iterator[Candidate]:
        """Cohorts beside rows on the accelerator, where all layers are resident."""
        for passes in numbers_of_passes(self._q.model.num_layers):
            rows = dict.fromkeys(self._ways, MAX_ROWS)
            for hosted in row_grid(limit):
                rows = self._beside("asymmetric", Elsewhere(), hosted, rows, passes)
                for reads_here, device in rows.items():
                    if device:
                        here = self._prompts_here("asymmetric", hosted, passes) if reads_here else 0
                        yield candidate_of(
                            "asymmetric", Elsewhere(), device, hosted, passes, prompts_here=here
                        )

    def _in_halves(self, elsewhere: Elsewhere, limit: int) -> Iterator[Candidate]:
        """All requests on the host, and all layers resident."""
        passes = self._q.model.num_layers
        for hosted in row_grid(limit):
            for reads_here in self._ways:
                here = self._prompts_here("symmetric", hosted, passes) if reads_here else 0
                candidate = candidate_of(
                    "symmetric", elsewhere, 0, hosted, passes, prompts_here=here
                )
                if hosted > 1 and self._footprint.fits(candidate):
                    yield candidate

    def split(self, elsewhere: Elsewhere, rows: int, step_tokens: int = 0) -> Candidate:
        """Rows that have as much of their KV on the accelerator as it holds."""
        whole = candidate_of("ride-along", elsewhere, 0, rows, step_tokens=step_tokens)
        each = self._footprint.device_blocks(whole) // rows
        share = min(1.0, each / self._footprint.held.last)
        return whole._replace(device_share=share)

    def _most_hosted(self, elsewhere: Elsewhere) -> int:
        """Rows that the host's memory holds, with what the accelerator's may add to it."""
        each = self._footprint.row_bytes / self._footprint.block_bytes
        return min(self._q.max_rows, int(self._blocks(elsewhere) / each))

    def _blocks(self, elsewhere: Elsewhere) -> int:
        """That both memories hold."""
        left = self._footprint.host_kv_bytes(elsewhere)
        left += max(0, self._footprint.device_kv_bytes("ride-along", elsewhere, 1))
        return left // self._footprint.block_bytes

    def most_on_device(
        self,
        strategy: Strategy,
        elsewhere: Elsewhere,
        hosted: int,
        limit: int = MAX_ROWS,
        passes: int = 0,
        step_tokens: int = 0,
        *,
        prompts_here: int = 0,
    ) -> int:
        """Most rows on the accelerator beside `hosted` rows on the host; 0 if none.

        Args:
            limit: no more than these; of fewer on the host, as many, and often as many here.
            passes, step_tokens, prompts_here: as in `Candidate`.
        """
        most = self._q.most_rows(step_tokens) - hosted
        holds = self._footprint.room(strategy, elsewhere, step_tokens).holds
        low, high = 0, min(limit, most)
        # a limit is mostly near: down from it in steps that double, then halves in between
        fewer = 1 if limit < MAX_ROWS else high
        middle = high
        while low < high:
            if holds(middle, hosted, passes, prompts_here=prompts_here):
                low = middle
            else:
                high = middle - 1
                fewer *= 2
            near = (low + high + 1) // 2
            middle = near if low else max(near, high + 1 - fewer)
        return low


def _thinned(grid: list[int], elsewhere: Elsewhere) -> list[int]:
    """Every second number, and the last one, where the CPU always computes, layers are read or MLPs
    alone streamed: small moves follow.
    """
    if not elsewhere.on_cpu and not elsewhere.on_disk and not elsewhere.mlps:
        return grid
    return [*grid[:-1:2], *grid[-1:]]
