"""An engine core without a model: deterministic tokens, and failures on demand."""

import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tandem.cost.hand_overs import HandOvers
from tandem.cost.prediction_ratios import PredictionRatios
from tandem.engine.stats import MemoryRow
from tandem.memory.prefix_cache import DiskStats, PrefixStats
from tandem.runtime.measures import OverlapTotals
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ContextLengthError, ModelError, OverloadError, RequestError
from tandem.spec.progress import Progress, no_progress
from tandem.spec.request import EngineRequest, FinishReason, RequestOutput, TokenLogprobs

VOCAB_SIZE = 4096
CRASH_TOKEN = 4000
"""A prompt that begins with this token makes the next step raise."""
KILL_TOKEN = 4001
"""A prompt that begins with this token kills the process."""
BROKEN_TOKEN = 4002
"""A prompt that begins with this token makes add_request raise something that is no TandemError."""
FOREVER_TOKEN = 4003
"""A prompt that begins with this token is never finished by itself."""


@dataclass(frozen=True)
class FakeTierStats:
    tier: str = "device"
    location: str = "device"
    total_blocks: int = 10
    free_blocks: int = 6
    block_bytes: int = 1024
    block_size: int = 16


@dataclass(frozen=True)
class FakeStats:
    """What front ends read of the real engine's, and more for tests."""

    num_running: int
    num_aborted: int
    num_finished: int
    pid: int
    num_waiting: int = 3
    preemptions: int = 0
    ways: dict[str, int] = field(default_factory=dict)
    cohort_joins: int = 0
    cohort_waits: int = 0
    mixed_returns: int = 0
    device_attention_tokens: int = 0
    host_attention_tokens: int = 0
    tiers: tuple[FakeTierStats, ...] = (FakeTierStats(),)
    prefix: PrefixStats = field(default_factory=PrefixStats)
    disk: DiskStats | None = None
    max_model_len: int = 512
    dtype: str = "float32"
    accelerator: str = "nothing"
    strategy: str = "none"
    notes: tuple[str, ...] = ()
    overlap: OverlapTotals | None = None
    recent_overlap: OverlapTotals | None = None
    prediction: PredictionRatios | None = None
    hand_overs: HandOvers | None = None
    pinned_bytes: int = 4096
    memory: tuple[MemoryRow, ...] = ()


def saying(token_ids: Sequence[int], eos_token_id: int = 1) -> Callable[[EngineRequest, int], int]:
    """For `token_at`: these tokens, then the end; over and over for FOREVER_TOKEN's prompts."""

    def token_at(request: EngineRequest, index: int) -> int:
        if request.prompt_token_ids[0] == FOREVER_TOKEN:
            return token_ids[index % len(token_ids)]
        return token_ids[index] if index < len(token_ids) else eos_token_id

    return token_at


@dataclass
class _Running:
    request: EngineRequest
    produced: int = 0


def default_token(request: EngineRequest, index: int) -> int:
    """The prompt, repeated; shifted by the seed, so that samples differ."""
    prompt = request.prompt_token_ids
    return (prompt[index % len(prompt)] + (request.sampling.seed or 0)) % 256


@dataclass
class FakeCore:
    """One token per running request and step, chosen by `token_at(request, index)`."""

    max_model_len: int = 512
    max_waiting: int = 1000
    eos_token_id: int = 1
    token_at: Callable[[EngineRequest, int], int] = default_token
    step_s: float = 0.0
    step_gate: threading.Semaphore | None = None
    preemptions: int = 0
    mixed_returns: int = 0
    ways: dict[str, int] = field(default_factory=dict)
    host_attention_tokens: int = 0
    tiers: tuple[FakeTierStats, ...] = (FakeTierStats(),)
    overlap: OverlapTotals | None = None
    recent_overlap: OverlapTotals | None = None
    prediction: PredictionRatios | None = None
    hand_overs: HandOvers | None = None
    prefix: PrefixStats = field(default_factory=PrefixStats)
    disk: DiskStats | None = None
    closed: bool = False
    aborted: list[str] = field(default_factory=list)
    requests: list[EngineRequest] = field(default_factory=list)
    step_threads: set[int] = field(default_factory=set)
    _running: dict[str, _Running] = field(default_factory=dict)
    _finished: int = 0
    _crash: bool = False

    def add_request(self, request: EngineRequest) -> None:
        prompt = request.prompt_token_ids
        if len(self._running) >= self.max_waiting:
            raise OverloadError(f"{self.max_waiting} requests are queued; try again later")
        if any(not 0 <= token < VOCAB_SIZE for token in prompt):
            raise RequestError(f"a token id lies outside 0..{VOCAB_SIZE - 1}", param="prompt")
        if len(prompt) >= self.max_model_len:
            raise ContextLengthError(
                f"the prompt has {len(prompt)} tokens, the model allows {self.max_model_len} in "
                "all; shorten it",
                param="prompt",
            )
        if prompt[0] == BROKEN_TOKEN:
            raise ZeroDivisionError("broken on purpose")
        if prompt[0] == KILL_TOKEN:
            os.kill(os.getpid(), signal.SIGKILL)
        self._crash = self._crash or prompt[0] == CRASH_TOKEN
        self.requests.append(request)
        self._running[request.request_id] = _Running(request)

    def abort(self, request_id: str) -> None:
        if self._running.pop(request_id, None):
            self.aborted.append(request_id)

    def has_work(self) -> bool:
        return bool(self._running)

    def wake_by(self, wake: Callable[[], None]) -> None:
        pass

    def is_parked(self) -> bool:
        return False

    def tend(self) -> None:
        pass

    def step(self) -> list[RequestOutput]:
        self.step_threads.add(threading.get_ident())
        if self.step_gate is not None:
            self.step_gate.acquire()
        threading.Event().wait(self.step_s)
        if self._crash:
            raise RuntimeError("crashed on purpose")
        outputs = [self._advance(running) for running in self._running.values()]
        for output in outputs:
            if output.finish_reason is not None:
                del self._running[output.request_id]
                self._finished += 1
        return outputs

    def _advance(self, running: _Running) -> RequestOutput:
        request, sampling = running.request, running.request.sampling
        token = self.token_at(request, running.produced)
        running.produced += 1
        stops = sampling.stop_token_ids + (() if sampling.ignore_eos else (self.eos_token_id,))
        reason, stop_token_id = None, None
        if token in stops and running.produced > sampling.min_tokens:
            reason, stop_token_id = FinishReason.STOP, token
        elif running.produced == self._limit(request):
            reason = FinishReason.LENGTH
        return RequestOutput(
            request.request_id,
            (token,),
            reason,
            stop_token_id,
            logprobs=() if sampling.logprobs is None else (_logprobs(token, sampling.logprobs),),
            cached_tokens=0,
        )

    def _limit(self, request: EngineRequest) -> int:
        if request.prompt_token_ids[0] == FOREVER_TOKEN:
            return -1
        room = self.max_model_len - len(request.prompt_token_ids)
        return min(request.sampling.max_tokens or room, room)

    def stats(self) -> FakeStats:
        running = len(self._running)
        return FakeStats(
            running,
            len(self.aborted),
            self._finished,
            os.getpid(),
            preemptions=self.preemptions,
            mixed_returns=self.mixed_returns,
            ways=self.ways,
            host_attention_tokens=self.host_attention_tokens,
            prefix=self.prefix,
            disk=self.disk,
            tiers=self.tiers,
            max_model_len=self.max_model_len,
            overlap=self.overlap,
            recent_overlap=self.recent_overlap,
            prediction=self.prediction,
            hand_overs=self.hand_overs,
        )

    def close(self) -> None:
        self.closed = True


def _logprobs(token: int, count: int) -> TokenLogprobs:
    top = tuple((token + i) % VOCAB_SIZE for i in range(count))
    return TokenLogprobs(-0.5, top, tuple(-0.5 - i for i in range(count)))


def build(config: EngineConfig, progress: Progress = no_progress) -> FakeCore:
    """A factory for engine processes; `config.model` chooses how the load goes."""
    progress("loading weights", 1, 2)
    match config.model:
        case "missing":
            raise ModelError("no model at 'missing'; name a directory", param="model")
        case "broken":
            raise ZeroDivisionError("broken on purpose")
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
    progress("loading weights", 2, 2)
    return FakeCore(max_model_len=config.max_model_len or 512, step_s=0.001)
