"""Whether a plan's programs, as its engine submits them in virtual time, give the right tokens.

The paced emulator computes nothing on its accelerator. Here the very programs that it is given run
on the exact emulator as well, with a small model in the place of the real one: as many layers, the
same blocks, rows, lanes, cohorts and copies. Its tokens take the place of the synthetic ones, and
must be those of an engine that has room for everything and attends on the accelerator alone.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tandem.bench.online.bed import Bed
from tandem.bench.online.cell import OnlineCell
from tandem.bench.online.closed_loop import ClosedLoop
from tandem.bench.online.engine import build_engine
from tandem.bench.online.plans import Planned
from tandem.bench.online.requests import SHAPES, VOCABULARY
from tandem.engine.core import EngineCore
from tandem.memory.page import KVPageSpec
from tandem.memory.pool import BlockPool
from tandem.models.disk_weights import DiskPlacement
from tandem.models.load import load_model
from tandem.models.model import Model
from tandem.plan.sweep_layers import SweepChoice
from tandem.runtime.build_machine import MachineSizes, build_machine
from tandem.runtime.inline import InlineExecutor
from tandem.runtime.paced.replayed import ReplayedTokens, ReplayExecutor
from tandem.scheduler.config import SchedulerConfig
from tandem.scheduler.scheduler import Scheduler
from tandem.scheduler.strategies.gpu_only import GpuOnly
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError, TandemError
from tandem.spec.request import EngineRequest, RequestOutput
from tandem.spec.sampling import SamplingParams
from tandem.spec.tier import Tier

TIE_MARGIN = 1e-5
"""Of log-probabilities: two orders of float32 sums may choose either of tokens that are closer."""
_PLAIN_ROWS = 32


class ReplayMismatchError(TandemError):
    """Tokens of a replay are not those of the plain engine."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What was executed of a plan, all of it with the right tokens.

    Attributes:
        tokens: that were compared, and are equal. joins: of cohorts, refused ones not counted.
        ties: requests that went on otherwise after two tokens that were equally likely.
    """

    programs: int
    requests: int
    tokens: int
    joins: int
    preemptions: int
    ties: int


@dataclass(slots=True)
class _Noting:
    """A core that keeps what it is asked and what it says."""

    core: EngineCore
    requests: dict[str, EngineRequest] = field(default_factory=dict[str, EngineRequest])
    tokens: dict[str, list[int]] = field(default_factory=dict[str, list[int]])

    def add_request(self, request: EngineRequest) -> None:
        self.requests[request.request_id] = request
        self.tokens[request.request_id] = []
        self.core.add_request(request)

    def step(self) -> Sequence[RequestOutput]:
        outputs = self.core.step()
        for output in outputs:
            self.tokens[output.request_id] += output.token_ids
        return outputs

    def close(self) -> None:
        self.core.close()


def check_replayed(cell: OnlineCell) -> None:
    """Find out before a long run whether a cell's programs can be replayed.

    Raises:
        ConfigError: the model is a mixture of experts.
    """
    if cell.model.experts is not None:
        raise ConfigError(
            "programs of mixtures of experts cannot be replayed yet; leave --replay out",
            param="replay",
        )


def replay(cell: OnlineCell, bed: Bed, planned: Planned, *, steps: int, seed: int = 0) -> Replay:
    """Execute a plan from empty: the steady state's beginning, some steps of it, and its end.

    Args:
        bed: of virtual time.
        steps: between the moment when all rows run and the one from which nobody comes any more.
        seed: of the exact emulator's order.

    Raises:
        ReplayError: an operation failed.
        ReplayMismatchError: a token is wrong.
    """
    plan = planned.plan
    assert plan is not None, f"{planned.policy} cannot run this"
    length = plan.max_model_len
    with TemporaryDirectory() as folder:
        layers = SweepChoice.of_plan(plan.weights, plan.cpu_rules)
        model = _small_model(Path(folder), cell.model.num_layers, length, layers)
        page = _page(model, plan.block_size)
        sizes = MachineSizes(page, plan.device_blocks, plan.host_blocks, plan.max_num_seqs)
        machine = build_machine(model, sizes, lambda tensor: tensor)
        tokens = ReplayedTokens(ReplayExecutor(machine, seed))
        engine = build_engine(cell, bed, planned, bed.clock(), tokens)
        core = _Noting(engine.core)
        forward = engine.executor.fast_forward
        rows, most = planned.counted_rows, plan.max_num_seqs
        tokens_at_once = plan.max_num_batched_tokens
        loop = ClosedLoop(core, cell.load.workload(SHAPES), rows, most, tokens_at_once, forward)
        try:
            loop.fill()
            for _ in range(steps):
                loop.step()
            while engine.core.has_work():
                core.step()
            tokens.close()
            stats = engine.core.stats()
        finally:
            core.close()
            machine.free()
        plain = _small_model(Path(folder), cell.model.num_layers, length)
        expected = _plain(plain, list(core.requests.values()), plan.block_size, length)
    equal = {
        name: equal_tokens(planned.policy, name, found, expected[name])
        for name, found in core.tokens.items()
    }
    return Replay(
        tokens.num_programs,
        len(core.requests),
        sum(equal.values()),
        stats.cohort_joins,
        stats.preemptions,
        sum(count < len(core.tokens[name]) for name, count in equal.items()),
    )


def _small_model(
    folder: Path, num_layers: int, max_positions: int, layers: SweepChoice | None = None
) -> Model:
    """A Llama of so many layers with random weights, in float32."""
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 16,
        "num_hidden_layers": num_layers,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "intermediate_size": 24,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": max_positions,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    disk = None
    if layers is not None and layers.usual.on_disk:
        disk = DiskPlacement(layers.usual.on_disk, "cached", (folder,))
    return load_model(folder, DType.FLOAT32, load_format="dummy", layers=layers, disk=disk)


def _page(model: Model, block_size: int) -> KVPageSpec:
    return KVPageSpec.of_model(model.spec, dtype=DType.FLOAT32, block_size=block_size)


@dataclass(slots=True)
class Expected:
    """Tokens of one request, and by how much each was likelier than the next best."""

    tokens: list[int] = field(default_factory=list[int])
    margins: list[float] = field(default_factory=list[float])


def _plain(
    model: Model, requests: list[EngineRequest], block_size: int, max_model_len: int
) -> dict[str, Expected]:
    """What an engine says that has room for all that run, one step at a time."""
    blocks = _PLAIN_ROWS * (-(-max_model_len // block_size) + 1)
    machine = build_machine(
        model, MachineSizes(_page(model, block_size), blocks, 0, _PLAIN_ROWS), lambda tensor: tensor
    )
    executor = InlineExecutor(machine)
    config = SchedulerConfig(
        num_layers=model.spec.num_layers,
        max_model_len=max_model_len,
        block_size=block_size,
        max_num_seqs=_PLAIN_ROWS,
        launch_ahead_steps=1,
    )
    pools = {Tier.DEVICE: BlockPool(Tier.DEVICE, blocks), Tier.HOST: BlockPool(Tier.HOST, 0)}
    scheduler = Scheduler(
        config, GpuOnly(), pools, vocab_size=VOCABULARY, enable_prefix_caching=False
    )
    found = {request.request_id: Expected() for request in requests}
    for request in requests:
        scheduler.add(_with_margins(request))
    while scheduler.has_work:
        for program in scheduler.schedule():
            executor.submit(program)
        for output in scheduler.observe(executor.poll(wait=True)):
            told = found[output.request_id]
            told.tokens += output.token_ids
            told.margins += [
                each.top_logprobs[0] - each.top_logprobs[1] for each in output.logprobs
            ]
    executor.close()
    machine.free()
    return found


def _with_margins(request: EngineRequest) -> EngineRequest:
    params = SamplingParams(
        max_tokens=request.sampling.max_tokens, temperature=0.0, ignore_eos=True, logprobs=2
    )
    return EngineRequest(request.request_id, request.prompt_token_ids, params)


def equal_tokens(policy: str, name: str, found: list[int], expected: Expected) -> int:
    """How many of a request's tokens are the plain engine's: all, or those before two that were
    equally likely, after which they are two texts.

    Raises:
        ReplayMismatchError: they part elsewhere, or in length.
    """
    if found == expected.tokens:
        return len(found)
    pairs = enumerate(zip(found, expected.tokens, strict=False))
    shorter = min(len(found), len(expected.tokens))
    place = next((n for n, (ours, theirs) in pairs if ours != theirs), shorter)
    if place < shorter and expected.margins[place] < TIE_MARGIN:
        return place
    raise ReplayMismatchError(
        f"{policy}: replayed request {name} has {len(found)} tokens of {len(expected.tokens)}, of "
        f"which number {place} is wrong: this is a fault of Tandem's, please report it"
    )
