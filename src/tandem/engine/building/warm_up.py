"""Run the largest step once, to see what it takes and that nothing grows later (contract 12)."""

import gc
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from tandem.devices.cuda.memory import await_all, end_peak, pin, start_peak
from tandem.engine.sizing.memory_plan import MemoryPlan
from tandem.memory.pool import BlockPool
from tandem.models.model import Model
from tandem.plan.strategy_names import PRICED_STRATEGIES
from tandem.runtime.build_machine import MachineSizes, build_machine
from tandem.runtime.executor import Executor
from tandem.runtime.inline import InlineExecutor
from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.scheduler import Scheduler
from tandem.scheduler.strategies.registry import make_strategy
from tandem.spec.config import AttentionBackend
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import MAX_LOGPROBS, SamplingParams
from tandem.spec.tier import Tier

# everything that takes memory in sampling, at once
_SAMPLING = SamplingParams(
    max_tokens=2,
    temperature=1.0,
    top_k=50,
    top_p=0.9,
    min_p=0.01,
    repetition_penalty=1.1,
    logprobs=MAX_LOGPROBS,
    ignore_eos=True,
)


def measure_workspace(
    model: Model, limits: SchedulerConfig, memory: MemoryPlan, attention: AttentionBackend = "auto"
) -> int:
    """Bytes that the largest steps allocate on a CUDA device beside weights and pages."""
    blocks = warm_up_blocks(limits, memory)
    before = start_peak(model.device)
    sizes = MachineSizes(
        memory.page,
        blocks[Tier.DEVICE],
        blocks[Tier.HOST],
        limits.max_num_seqs,
        attention=attention,
    )
    machine = build_machine(model, sizes, lambda tensor: tensor.to(model.device), pin)
    pages = machine.kv.size_bytes(Tier.DEVICE)
    # what the CPU read of its inputs before they came may be no numbers, which end a sequence
    executor = InlineExecutor(machine, arrive=partial(await_all, model.device))
    run_largest_steps(executor, model.spec.vocab_size, limits, memory.plan.strategy, blocks)
    machine.kv.close()
    del machine, executor
    gc.collect()  # their parts know each other, and would keep pages beside the engine's own
    return max(0, end_peak(model.device) - before - pages)


def warm_up_blocks(limits: SchedulerConfig, memory: MemoryPlan) -> dict[Tier, int]:
    """Blocks per tier that the largest steps need at most, or as many as there are."""
    needed = limits.max_num_seqs + memory.page.blocks_for_tokens(limits.max_num_batched_tokens)
    # admission keeps a sixteenth of a pool free
    wanted = needed + needed // 15 + 1
    plan = memory.plan
    return {
        Tier.DEVICE: min(wanted, plan.device_blocks),
        Tier.HOST: min(wanted, plan.host_blocks),
    }


def run_largest_steps(
    executor: Executor,
    vocab_size: int,
    limits: SchedulerConfig,
    strategy: str,
    blocks: Mapping[Tier, int],
) -> int:
    """Reach the largest shapes on an idle executor, which is idle again afterwards.

    First all sequences come at once, of which a step begins as many as it may sample, with prompts
    of as many tokens as it may compute. Then a few such prompts arrive while all other sequences
    decode (on the host, as a cohort, if the strategy has cohorts). Fewer blocks than
    `warm_up_blocks` make the steps smaller.

    Args:
        limits: of the engine; `auto` placement becomes `split`, so that both tiers take part.

    Returns: sequences that ended, for the caller to check.
    """
    made = make_strategy(_of_largest_steps(strategy, limits))
    # a cohort's own passes are smaller than stages that it shares
    limits = replace(limits, interposition_budget=0)
    if made.uses_host and blocks[Tier.HOST] and limits.kv_placement == "auto":
        limits = replace(limits, kv_placement="split")
    pools = {tier: BlockPool(tier, count) for tier, count in blocks.items()}
    run = _Run(
        executor, Scheduler(limits, made, pools, vocab_size=vocab_size, enable_prefix_caching=False)
    )
    rows, tokens = limits.max_num_seqs, limits.max_num_batched_tokens
    longest = limits.max_model_len - (_SAMPLING.max_tokens or 0)
    run.add(_lengths(rows, tokens, longest))
    run.drain()
    late = min(-(-tokens // longest), rows)
    run.add([1] * (rows - late))
    decoding = False
    while run.busy and not decoding:
        decoding = run.step()
    run.step()
    run.add(_lengths(late, tokens, longest))
    run.drain()
    return run.ended


def _of_largest_steps(strategy: str, limits: SchedulerConfig) -> str:
    """Without prices, those that choose by them would not reach the largest steps."""
    if strategy not in PRICED_STRATEGIES:
        return strategy
    return "rendezvous" if limits.cohort_layers else "ride-along"


def _lengths(count: int, tokens: int, longest: int) -> list[int]:
    """`count` prompt lengths of 1 to `longest` with a sum of `tokens`, or as near as possible."""
    lengths: list[int] = []
    for left in range(count, 0, -1):
        lengths.append(max(1, min(longest, tokens - sum(lengths) - (left - 1))))
    return lengths


class _Run:
    """Drives a scheduler of its own on the executor."""

    def __init__(self, executor: Executor, scheduler: Scheduler) -> None:
        self._executor = executor
        self._scheduler = scheduler
        self._added = 0
        self.ended = 0

    @property
    def busy(self) -> bool:
        return self._scheduler.has_work

    def add(self, lengths: list[int]) -> None:
        for length in lengths:
            self._scheduler.add(EngineRequest(str(self._added), (0,) * length, _SAMPLING))
            self._added += 1

    def drain(self) -> None:
        while self.busy:
            self.step()

    def step(self) -> bool:
        """True if any sequence got a token."""
        programs = self._scheduler.schedule()
        for program in programs:
            self._executor.submit(program)
        wait = not programs and self._scheduler.flight.busy
        outputs = self._scheduler.observe(self._executor.poll(wait=wait))
        for cohort_id in self._scheduler.finished_cohorts():
            self._executor.release_cohort(cohort_id)
        for program in self._scheduler.late_sampling():
            self._executor.submit(program)
        self.ended += sum(output.finish_reason is not None for output in outputs)
        return len(outputs) > 0
