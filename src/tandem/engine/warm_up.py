"""Run the largest step once and see what it takes (contract 12)."""

from tandem.devices.cuda import end_peak, start_peak
from tandem.engine.memory_plan import MemoryPlan
from tandem.memory.pool import BlockPool
from tandem.models.model import Model
from tandem.runtime.assemble import MachineSizes, build_machine
from tandem.runtime.executor import Executor
from tandem.runtime.inline import InlineExecutor
from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.scheduler import Scheduler
from tandem.scheduler.strategies.gpu_only import GpuOnly
from tandem.spec.config import EngineConfig
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams
from tandem.spec.tier import Tier


def measure_workspace(model: Model, config: EngineConfig, memory: MemoryPlan) -> int:
    """Bytes that a step of maximum shape allocates on a CUDA device beside weights and pages."""
    rows, tokens = config.max_num_seqs, config.max_num_batched_tokens
    blocks = rows + memory.page.blocks_for_tokens(tokens)
    before = start_peak(model.device)
    sizes = MachineSizes(memory.page, blocks, 0, rows)
    machine = build_machine(model, sizes, lambda tensor: tensor.to(model.device))
    pages = machine.kv.size_bytes(Tier.DEVICE)
    run_largest_step(InlineExecutor(machine), model, config, blocks)
    del machine
    return max(0, end_peak(model.device) - before - pages)


def run_largest_step(executor: Executor, model: Model, config: EngineConfig, blocks: int) -> int:
    """Prefill `max_num_batched_tokens` tokens of `max_num_seqs` sequences in one step, all sampled.

    Returns: sequences that ended, for the caller to check.
    """
    rows, tokens = config.max_num_seqs, config.max_num_batched_tokens
    longest = tokens - (rows - 1)
    pools = {Tier.DEVICE: BlockPool(Tier.DEVICE, blocks), Tier.HOST: BlockPool(Tier.HOST, 0)}
    limits = SchedulerConfig(
        num_layers=model.spec.num_layers,
        max_model_len=longest + 1,
        block_size=config.block_size,
        max_num_seqs=rows,
        max_num_batched_tokens=tokens,
    )
    scheduler = Scheduler(
        limits, GpuOnly(), pools, vocab_size=model.spec.vocab_size, enable_prefix_caching=False
    )
    params = SamplingParams(max_tokens=1, logprobs=0)
    positions = model.spec.max_positions
    for row in range(rows):
        length = min(longest, positions - 1) if row == 0 else 1
        scheduler.add(EngineRequest(str(row), (0,) * length, params))
    ended = 0
    while scheduler.has_work:
        for program in scheduler.schedule():
            executor.submit(program)
        outputs = scheduler.observe(executor.poll(wait=True))
        ended += sum(output.finish_reason is not None for output in outputs)
    return ended
