"""A scheduler in steady decode over an executor that answers at once."""

import random
import time

from tandem.bench.instant_executor import InstantExecutor
from tandem.bench.steady_start import DEVICE, HOST, SteadyStart
from tandem.cost.step_prices import StepPrices
from tandem.cost.step_rates import step_prices
from tandem.memory.pool import BlockPool
from tandem.models.catalogue import plannable_spec
from tandem.plan.online import OnlinePlan
from tandem.plan.program import StepProgram
from tandem.plan.weights import WeightPlacement
from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.proposal import StepProposal
from tandem.scheduler.scheduler import Scheduler
from tandem.scheduler.strategies.base import Strategy
from tandem.scheduler.view import SchedulerView
from tandem.spec.dtype import DType
from tandem.spec.hardware_file import load_hardware
from tandem.spec.precision import Precision
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams
from tandem.spec.tier import Tier

_NUM_LAYERS = 32
_BLOCK_SIZE = 64
_PROMPT_TOKENS = (512, 1536)
_MAX_TOKENS = 4096
_MAX_MODEL_LEN = _PROMPT_TOKENS[1] + _MAX_TOKENS
_VOCAB_SIZE, _EOS_ID = 32_000, 2
_MODEL, _HARDWARE = "llama-3.1-8b", "a10g-scaled"
_KEY_BYTES = 4096.0  # of its keys and values of a token, in one layer


class AllPropose:
    """Asks every strategy in each step, as a choice between them would, and takes the first's."""

    name = "all propose"

    def __init__(self, chosen: Strategy, *others: Strategy) -> None:
        self._chosen = chosen
        self._others = others

    @property
    def uses_host(self) -> bool:
        """As the chosen one."""
        return self._chosen.uses_host

    def propose(self, view: SchedulerView, prices: StepPrices | None) -> StepProposal:
        """The chosen strategy's proposal."""
        for strategy in self._others:
            strategy.propose(view, prices)
        return self._chosen.propose(view, prices)


def some_prices(num_rows: int) -> StepPrices:
    """Of some machine: what is chosen by them is of no consequence for the time that it takes."""
    spec = plannable_spec(_MODEL)
    plan = OnlinePlan(
        strategy="auto",
        weights=(WeightPlacement(0, spec.num_layers - 1),),
        device_blocks=1,
        host_blocks=1,
        block_size=_BLOCK_SIZE,
        max_model_len=_MAX_MODEL_LEN,
        max_num_seqs=num_rows,
        max_num_batched_tokens=max(num_rows, 8 * _PROMPT_TOKENS[1]),
    )
    precision = Precision.uniform(DType.FLOAT16)
    return step_prices(plan, spec, precision, load_hardware(_HARDWARE), _KEY_BYTES, _KEY_BYTES)


class SchedulerLoad:
    """Decodes of `num_rows` requests, of which every second keeps its KV on the host if it may.

    Prompts are 512 to 1,536 random tokens, so that rows reach a new block in different steps; every
    second request samples at a temperature of 1, the others are greedy; the prefix cache is on.
    """

    def __init__(self, strategy: Strategy, num_rows: int) -> None:
        blocks = num_rows * -(-_MAX_MODEL_LEN // _BLOCK_SIZE)
        self._scheduler = Scheduler(
            SchedulerConfig(
                num_layers=_NUM_LAYERS,
                max_model_len=_MAX_MODEL_LEN,
                block_size=_BLOCK_SIZE,
                max_num_seqs=num_rows,
                max_num_batched_tokens=max(num_rows, 8 * _PROMPT_TOKENS[1]),
            ),
            SteadyStart(strategy),
            {tier: BlockPool(tier, blocks) for tier in Tier},
            vocab_size=_VOCAB_SIZE,
            eos_ids=(_EOS_ID,),
            prices=some_prices(num_rows),
        )
        self._executor = InstantExecutor(_VOCAB_SIZE, _EOS_ID)
        self._add_requests(num_rows, (DEVICE, HOST) if strategy.uses_host else (DEVICE,))
        while len(self._scheduler.waiting):
            self.step()

    def _add_requests(self, count: int, places: tuple[str, ...]) -> None:
        draw = random.Random(0)
        tokens = draw.choices(range(_EOS_ID + 1, _VOCAB_SIZE), k=1 << 20)
        for number in range(count):
            length = draw.randint(*_PROMPT_TOKENS)
            begin = draw.randrange(len(tokens) - length)
            params = SamplingParams(_MAX_TOKENS, temperature=float(number % 4 < 2))
            name = f"{places[number % len(places)]}-{number}"
            prompt = tuple(tokens[begin : begin + length])
            self._scheduler.add(EngineRequest(name, prompt, params))

    def step(self) -> float:
        """One step; returns the scheduler's own processor time in seconds."""
        scheduler, executor = self._scheduler, self._executor
        begin = time.thread_time()
        programs = scheduler.schedule()
        spent_s = time.thread_time() - begin
        self._submit(programs)
        events = executor.poll(wait=False)
        begin = time.thread_time()
        scheduler.observe(events)
        finished = scheduler.finished_cohorts()
        late = scheduler.late_sampling()
        spent_s += time.thread_time() - begin
        for cohort_id in finished:
            executor.release_cohort(cohort_id)
        self._submit(late)
        return spent_s

    def known_tokens(self) -> int:
        """Tokens of all requests, prompts included."""
        rows = self._scheduler.rows
        return int(rows.known[rows.owned()].sum())

    def rows_with_host_kv(self) -> int:
        """Requests of which any KV lies on the host."""
        rows = self._scheduler.rows
        return int((rows.num_host_blocks[rows.owned()] > 0).sum())

    def _submit(self, programs: list[StepProgram]) -> None:
        for program in programs:
            self._executor.submit(program)
