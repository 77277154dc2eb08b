"""Counts what an engine does."""

from collections import Counter
from collections.abc import Callable

from tandem.engine.memory_record import MemoryRecorder
from tandem.engine.stats import EngineStats, MemoryRow, TierStats
from tandem.memory.ledger import MemoryLedger
from tandem.memory.page import KVPageSpec
from tandem.memory.peaks import read_host_memory
from tandem.memory.process_peak import ProcessPeak
from tandem.plan.events import Event, LaneAdvanced
from tandem.plan.online import OnlinePlan
from tandem.plan.program import StepProgram
from tandem.runtime.measures import DeviceMeasures
from tandem.scheduler.outputs import StepOutputs
from tandem.scheduler.scheduler import Scheduler
from tandem.spec.tier import TIERS, Tier


class StatsCollector:
    """Sees every program, event and output of one engine.

    Args:
        measures: asks the accelerator what it has used at most.
        expert_hits: by layer, how often tokens went to each expert.
        peak: of this process, from before the engine took anything; None: from here on.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        plan: OnlinePlan,
        page: KVPageSpec,
        ledger: MemoryLedger,
        measures: DeviceMeasures,
        dtype: str,
        expert_hits: Callable[[], tuple[tuple[int, ...], ...]] = tuple,
        peak: ProcessPeak | None = None,
    ) -> None:
        self._expert_hits = expert_hits
        self._scheduler = scheduler
        self._plan = plan
        self._page = page
        self._memory = MemoryRecorder(ledger, measures, peak or ProcessPeak(read_host_memory()))
        self._measures = measures
        self._dtype = dtype
        self.prompt_tokens = 0
        self.scheduler_time_s = 0.0
        self._generated = self._steps = self._transfers = 0
        self._attended = {Tier.DEVICE: 0, Tier.HOST: 0}
        self._joins = self._waits = 0
        self._ways: Counter[str] = Counter()
        self._peak_held = {Tier.DEVICE: 0, Tier.HOST: 0}

    def mark_warm(self) -> None:
        """The largest step has run; see `MemoryRecorder`."""
        self._memory.mark_warm()

    def submitted(self, program: StepProgram) -> None:
        """A program goes to the executor."""
        self._transfers += len(program.transfers)
        if not program.lanes:
            return
        self._steps += 1
        self._ways[self._scheduler.last_way or self._plan.strategy] += 1
        for slot, shape in zip(program.lanes, program.template.lanes, strict=True):
            if shape.cursor is None:
                for tier, part in slot.binding.attention.items():
                    self._attended[tier] += len(part.positions)
        for tier in TIERS:
            held = self._scheduler.kv.pools[tier].counts().held
            self._peak_held[tier] = max(self._peak_held[tier], held)

    def idle(self) -> None:
        """No request is unfinished and nothing is in flight."""
        if self._measures.overlap is not None:
            self._measures.overlap.pause()

    def observe(self, events: list[Event], outputs: StepOutputs) -> None:
        """Events were taken in and gave these outputs."""
        for event in events:
            if isinstance(event, LaneAdvanced):
                self._joins += event.joined
                self._waits += not event.joined
        self._generated += outputs.num_tokens

    def stats(self) -> EngineStats:
        """Counters since start, gauges of now."""
        scheduler, host = self._scheduler, read_host_memory()
        self._memory.record()
        ledger, meter = self._memory.ledger, self._measures.overlap
        return EngineStats(
            accelerator=self._measures.description,
            strategy=self._plan.strategy,
            dtype=self._dtype,
            max_model_len=self._plan.max_model_len,
            num_running=scheduler.running.count - len(scheduler.waiting),
            num_waiting=len(scheduler.waiting),
            num_steps=self._steps,
            ways=dict(self._ways),
            prompt_tokens=self.prompt_tokens,
            generated_tokens=self._generated,
            cached_prompt_tokens=scheduler.cached_prompt_tokens,
            preemptions=scheduler.running.num_preemptions,
            mixed_returns=scheduler.running.returning.num_begun,
            transfers=self._transfers,
            device_attention_tokens=self._attended[Tier.DEVICE],
            host_attention_tokens=self._attended[Tier.HOST],
            cohort_joins=self._joins,
            cohort_waits=self._waits,
            prefix=scheduler.kv.prefix.stats,
            disk=None if scheduler.disk is None else scheduler.disk.stats,
            scheduler_time_s=self.scheduler_time_s,
            overlap=None if meter is None else meter.totals,
            recent_overlap=None if meter is None else meter.recent(),
            prediction=None if scheduler.timer is None else scheduler.timer.calibrator.ratios(),
            hand_overs=None if scheduler.hand_overs is None else scheduler.hand_overs.learner.known,
            tiers=tuple(self._tier(tier) for tier in TIERS),
            memory=tuple(
                MemoryRow(e.location, e.label, e.predicted_bytes, e.actual_bytes)
                for e in ledger.as_rows()
            ),
            memory_totals=tuple(ledger.totals(place) for place in ledger.locations),
            peak_device_bytes=self._measures.peak_bytes(),
            pinned_bytes=self._measures.pinned_bytes(),
            peak_host_bytes=host.peak_rss_bytes,
            expert_hits=self._expert_hits(),
            notes=self._plan.notes,
        )

    def _tier(self, tier: Tier) -> TierStats:
        counts = self._scheduler.kv.pools[tier].counts()
        entries = self._memory.ledger.entries
        places = [entry.location for entry in entries if entry.label == "kv pool"]
        return TierStats(
            tier=tier.label,
            location=tier.label if tier.label in places else Tier.HOST.label,
            total_blocks=counts.total,
            free_blocks=counts.free,
            held_blocks=counts.held,
            leased_blocks=counts.leased,
            in_transfer_blocks=counts.in_transfer,
            cached_blocks=counts.cached_free,
            peak_held_blocks=self._peak_held[tier],
            block_bytes=self._page.on(tier).bytes_per_block,
            block_size=self._page.block_size,
        )
