"""Counts what an engine of an offline plan does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tandem.engine.memory_record import MemoryRecorder
from tandem.engine.stats import EngineStats, MemoryRow, TierStats
from tandem.memory.ledger import MemoryLedger
from tandem.memory.page import KVPageSpec
from tandem.memory.peaks import read_host_memory
from tandem.memory.prefix_cache import PrefixStats
from tandem.memory.process_peak import ProcessPeak
from tandem.plan.program import StepProgram
from tandem.runtime.measures import DeviceMeasures
from tandem.scheduler.blocks.block_scheduler import BlockScheduler
from tandem.spec.request import RequestOutput
from tandem.spec.tier import TIERS, Tier

STRATEGY = "blocks"


@dataclass(slots=True)
class BlockCounts:
    """What engines of one job have done, whatever their plans.

    Attributes:
        prompt_tokens: of requests that were accepted. generated: tokens of output.
        attended: tokens by where their attention was computed.
    """

    prompt_tokens: int = 0
    generated: int = 0
    steps: int = 0
    attended: dict[Tier, int] = field(default_factory=lambda: {Tier.DEVICE: 0, Tier.HOST: 0})


class BlockStats:
    """Sees every program and output of one engine.

    Args:
        measures: asks the accelerator what it has used at most.
        dtype: element types, in words.
        peak: of this process, from before the engine took anything; None: from here on.
        counts: of engines before this one.
    """

    def __init__(
        self,
        scheduler: BlockScheduler,
        page: KVPageSpec,
        ledger: MemoryLedger,
        measures: DeviceMeasures,
        dtype: str,
        max_model_len: int,
        notes: tuple[str, ...] = (),
        expert_hits: Callable[[], tuple[tuple[int, ...], ...]] = tuple,
        peak: ProcessPeak | None = None,
        counts: BlockCounts | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._page = page
        self._memory = MemoryRecorder(ledger, measures, peak or ProcessPeak(read_host_memory()))
        self._measures = measures
        self._dtype = dtype
        self._max_model_len = max_model_len
        self._notes = notes
        self._expert_hits = expert_hits
        self.counts = counts or BlockCounts()
        self._peak_held = {Tier.DEVICE: 0, Tier.HOST: 0}

    def submitted(self, program: StepProgram) -> None:
        """A program goes to the executor."""
        if not program.sampling:  # the fill of slots
            return
        counts = self.counts
        counts.steps += 1
        for slot in program.lanes:
            on_host = slot.binding.attention.get(Tier.HOST)
            hosted = 0 if on_host is None else len(on_host.positions)
            counts.attended[Tier.HOST] += hosted
            counts.attended[Tier.DEVICE] += slot.binding.num_tokens - hosted
        for tier in TIERS:
            held = self._scheduler.places.counts(tier).held
            self._peak_held[tier] = max(self._peak_held[tier], held)

    def idle(self) -> None:
        """No request is unfinished and nothing is in flight."""
        if self._measures.overlap is not None:
            self._measures.overlap.pause()

    def generated(self, outputs: Sequence[RequestOutput]) -> None:
        """Outputs of a step."""
        self.counts.generated += sum(len(output.token_ids) for output in outputs)

    def read(self) -> EngineStats:
        """Counters since start, gauges of now."""
        scheduler, counts = self._scheduler, self.counts
        self._memory.record()
        ledger, meter = self._memory.ledger, self._measures.overlap
        return EngineStats(
            accelerator=self._measures.description,
            strategy=STRATEGY,
            dtype=self._dtype,
            max_model_len=self._max_model_len,
            num_running=scheduler.num_requests - len(scheduler.waiting),
            num_waiting=len(scheduler.waiting),
            num_steps=counts.steps,
            ways={STRATEGY: counts.steps},
            prompt_tokens=counts.prompt_tokens,
            generated_tokens=counts.generated,
            cached_prompt_tokens=0,
            preemptions=0,
            mixed_returns=0,
            transfers=0,
            device_attention_tokens=counts.attended[Tier.DEVICE],
            host_attention_tokens=counts.attended[Tier.HOST],
            cohort_joins=0,
            cohort_waits=0,
            prefix=PrefixStats(),
            disk=None,
            scheduler_time_s=0.0,
            overlap=None if meter is None else meter.totals,
            recent_overlap=None if meter is None else meter.recent(),
            prediction=None,
            hand_overs=None,
            tiers=tuple(self._tier(tier) for tier in TIERS),
            memory=tuple(
                MemoryRow(e.location, e.label, e.predicted_bytes, e.actual_bytes)
                for e in ledger.as_rows()
            ),
            memory_totals=tuple(ledger.totals(place) for place in ledger.locations),
            peak_device_bytes=self._measures.peak_bytes(),
            pinned_bytes=self._measures.pinned_bytes(),
            peak_host_bytes=read_host_memory().peak_rss_bytes,
            expert_hits=self._expert_hits(),
            notes=(*self._notes, *scheduler.replans),
        )

    def _tier(self, tier: Tier) -> TierStats:
        counts = self._scheduler.places.counts(tier)
        return TierStats(
            tier=tier.label,
            location=tier.label,
            total_blocks=counts.total,
            free_blocks=counts.free,
            held_blocks=counts.held,
            leased_blocks=0,
            in_transfer_blocks=0,
            cached_blocks=0,
            peak_held_blocks=self._peak_held[tier],
            block_bytes=self._page.on(tier).bytes_per_block,
            block_size=self._page.block_size,
        )
