"""Scheduler, collector and loop over an engine's parts."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tandem.engine.building.parts import EngineParts
from tandem.engine.building.scheduler_options import host_prefix_share, prices_of, scheduler_config
from tandem.engine.building.tracing import begin_to_count
from tandem.engine.core import EngineCore
from tandem.engine.memory_record import record_actual
from tandem.engine.sizing.expert_hits_file import write_expert_hits
from tandem.engine.stats_collector import StatsCollector
from tandem.memory.pool import BlockPool
from tandem.memory.process_peak import ProcessPeak
from tandem.models.expert_hits import ExpertHits
from tandem.scheduler.scheduler import Scheduler
from tandem.scheduler.strategies.registry import make_strategy
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.tier import Tier

if TYPE_CHECKING:
    from tandem.engine.engine_trace import EngineTrace
    from tandem.memory.disk_index import DiskIndex
    from tandem.runtime.page_file import PageFile
    from tandem.runtime.page_worker import PageWorker


_LOG = logging.getLogger(__name__)


def core_of(
    parts: EngineParts,
    *,
    check: bool = False,
    warm: bool = False,
    trace: "EngineTrace | None" = None,
) -> EngineCore:
    """Scheduler, collector and loop over an engine's parts, which have run their largest steps
    already if `warm`.
    """
    config, spec, memory, assembled = parts.config, parts.spec, parts.memory, parts.assembled
    plan = memory.plan
    pools = {
        Tier.DEVICE: BlockPool(Tier.DEVICE, plan.device_blocks),
        Tier.HOST: BlockPool(Tier.HOST, plan.host_blocks),
    }
    share = host_prefix_share(config, plan, parts.target.hardware)
    scheduler = Scheduler(
        replace(scheduler_config(plan, config, spec), host_prefix_share=share),
        make_strategy(plan.strategy),
        pools,
        vocab_size=spec.vocab_size,
        eos_ids=spec.eos_token_ids,
        enable_prefix_caching=config.enable_prefix_caching,
        publish_moved=not memory.page.converts,
        prices=prices_of(
            plan,
            spec,
            parts.precision,
            memory.page,
            parts.target.hardware,
            config,
            share,
        ),
        clock=time.perf_counter,
        stored=None if parts.disk is None else _stored(parts.disk),
    )
    record_actual(memory.ledger, assembled.machine)
    hits = assembled.machine.runner.expert_hits
    hits.clear()
    collector = StatsCollector(
        scheduler,
        plan,
        memory.page,
        memory.ledger,
        assembled.measures,
        str(parts.precision),
        hits.by_layer,
        ProcessPeak(parts.target.host),
    )
    if warm:
        collector.mark_warm()
    begin_to_count(assembled.measures.overlap, trace)
    return EngineCore(
        scheduler,
        assembled.executor,
        collector,
        overlap=config.overlap,
        check=check,
        release=_at_end(config, hits, assembled.release),
        trace=trace,
        disk=None if parts.disk is None else _disk_worker(parts.disk, scheduler, parts),
    )


def _stored(disk: "PageFile") -> "DiskIndex":
    from tandem.memory.disk_index import DiskIndex

    return DiskIndex(disk.num_slots, disk.stored())


def _disk_worker(disk: "PageFile", scheduler: Scheduler, parts: EngineParts) -> "PageWorker":
    from tandem.runtime.page_worker import PageWorker

    assert scheduler.disk is not None
    pages = parts.assembled.machine.kv.bytes_in_host_memory(scheduler.disk.tier)
    return PageWorker(disk, pages)


def _at_end(config: EngineConfig, hits: ExpertHits, free: Callable[[], None]) -> Callable[[], None]:
    """What is left to do when nothing is in flight any more."""

    def end() -> None:
        if config.save_expert_hits is not None:
            path, name = Path(config.save_expert_hits), Path(config.model).name
            try:
                write_expert_hits(path, name, hits.by_layer())
            except ConfigError as error:  # the requests have been answered all the same
                _LOG.error("%s", error.message)
        free()

    return end
