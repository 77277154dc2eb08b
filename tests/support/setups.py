"""How a test wants its engine: sizes, strategy, executor and loop."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.support.switching import Switching

from tandem.cost.step_prices import StepPrices
from tandem.plan.sweep_layers import CpuRule, SweepChoice
from tandem.plan.weights import SLOTTED, STREAM_SLOTS, Home, WeightPlacement
from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.strategies.base import Strategy
from tandem.scheduler.strategies.registry import make_strategy
from tandem.spec.config import KVPlacement, PreemptionMode
from tandem.spec.errors import ConfigError
from tandem.spec.kv_type import KVType

ExecutorKind = Literal["host", "inline", "threaded", "exact"]


def sweep_choice(
    homes: tuple[tuple[int, Home], ...],
    rules: tuple[CpuRule, ...] = (),
    experts: tuple[tuple[int, tuple[int, ...]], ...] = (),
) -> SweepChoice:
    """Of layers with homes by number; the others are resident, as are some layers' `experts`."""
    single = dict(experts)
    runs = [WeightPlacement(n, n, home, single.get(n, ())) for n, home in homes]
    return SweepChoice.of_plan(runs, rules)


def going_together(
    homes: Sequence[Home], rules: tuple[CpuRule, ...]
) -> tuple[tuple[tuple[int, Home], ...], tuple[CpuRule, ...]]:
    """The homes of layers 0, 1, ..., and of the rules those that do not change the order in which
    layers on disk are read. Such a layer that would stay in a slot of the accelerator, while the
    CPU computes others, is streamed from host memory instead.
    """
    slotted = sum(home in SLOTTED for home in homes)
    if slotted <= STREAM_SLOTS and "disk-cpu" in homes:
        homes = ["streamed" if home == "disk_streamed" else home for home in homes]
    placed = tuple(enumerate(homes))

    def keeps(rule: CpuRule) -> bool:
        try:
            sweep_choice(placed, (rule,))
        except ConfigError as error:
            if "they are read in one" not in error.message:
                raise
            return False
        return True

    return placed, tuple(filter(keeps, rules))


def streamed(*layers: int) -> tuple[tuple[int, Home], ...]:
    """Homes of layers that are streamed."""
    return tuple((layer, "streamed") for layer in layers)


@dataclass(frozen=True, slots=True)
class Setup:
    """One engine under test; the defaults are the plainest one with ample memory.

    Attributes:
        strategy: by name, an object of the test's, or one of several in every step.
        executor: `host` is the inline one as `--accelerator none` has it, with compiled kernels in
            both tiers where there are any; `exact` draws its order from `executor_seed`.
        homes: of layers, by number; others are resident. cpu_rules: as in the plan.
        experts: by layer of home `cpu-mlp` or `host-mlp`, those that are resident all the same.
        kv: what the KV cache holds; None for the model's element type.
        host_kv: what its part on the host holds; None for the same.
        overlap: submit steps ahead of their results.
        graphs: steps that only decode, on the device, are launched as one; not by compiled kernels.
        prices: what the scheduler is told of steps' times.
        ttft_bound_s: by a clock that goes on by a second whenever it is asked.
        disk: folder for cached prefixes. disk_bytes: that they may take there.
    """

    strategy: str | Strategy | Switching = "gpu-only"
    device_blocks: int = 128
    host_blocks: int = 0
    block_size: int = 16
    max_model_len: int = 256
    max_num_seqs: int = 8
    max_num_batched_tokens: int = 256
    max_num_queued_reqs: int | None = None
    kv_placement: KVPlacement = "auto"
    max_host_seqs: int = 0
    max_device_seqs: int = 0
    prompts_on_device: bool = False
    split_blocks: int = 0
    most_overtaken: int = 64
    preemption_mode: PreemptionMode = "recompute"
    prefix_caching: bool = True
    host_prefix_share: float = 0.0
    executor: ExecutorKind = "inline"
    executor_seed: int = 0
    kv: KVType | None = None
    host_kv: KVType | None = None
    overlap: bool = True
    graphs: bool = False
    launch_ahead_steps: int = 2
    max_cohorts: int = 1
    max_cohort_rows: int = 256
    max_sampled_rows: int = 0
    interposition_budget: int = 0
    workspace_bytes: int | None = None
    homes: tuple[tuple[int, Home], ...] = ()
    cpu_rules: tuple[CpuRule, ...] = ()
    experts: tuple[tuple[int, tuple[int, ...]], ...] = ()
    seed: int = 0
    eos_ids: tuple[int, ...] = ()
    prices: StepPrices | None = None
    disk: Path | None = None
    disk_bytes: int = 1 << 24
    tpot_bound_s: float | None = None
    ttft_bound_s: float | None = None

    @property
    def layers(self) -> SweepChoice:
        """What sweeps do with layers that are not resident."""
        return sweep_choice(self.homes, self.cpu_rules, self.experts)

    def make_strategy(self) -> Strategy:
        """The strategy object."""
        if isinstance(self.strategy, Switching):
            return self.strategy.make()
        return make_strategy(self.strategy) if isinstance(self.strategy, str) else self.strategy

    def scheduler_config(self, num_layers: int) -> SchedulerConfig:
        """What the scheduler is told."""
        return SchedulerConfig(
            num_layers=num_layers,
            max_model_len=self.max_model_len,
            block_size=self.block_size,
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            max_num_queued_reqs=self.max_num_queued_reqs,
            kv_placement=self.kv_placement,
            max_host_seqs=self.max_host_seqs,
            max_device_seqs=self.max_device_seqs,
            prompts_on_device=self.prompts_on_device,
            split_blocks=self.split_blocks,
            most_overtaken=self.most_overtaken,
            preemption_mode=self.preemption_mode,
            launch_ahead_steps=self.launch_ahead_steps if self.overlap else 1,
            max_cohorts=self.max_cohorts,
            max_cohort_rows=self.max_cohort_rows,
            max_sampled_rows=self.max_sampled_rows,
            interposition_budget=self.interposition_budget,
            tpot_bound_s=self.tpot_bound_s,
            ttft_bound_s=self.ttft_bound_s,
            host_prefix_share=self.host_prefix_share,
            seed=self.seed,
            layers=self.layers,
        )
