"""Engines on the measured device, and whole jobs on them."""

import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.gpu.cells import Shape
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.scale import Scale

from tandem.engine.building.build import build_engine_core
from tandem.engine.core import EngineCore
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

_SPREAD = 0.1  # of lengths, as in NEO's synthetic workloads


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of a job."""

    prompt: tuple[int, ...]
    new_tokens: int


def drawn_job(scale: Scale, vocab_size: int) -> list[Asked]:
    """Requests with lengths within a tenth of the means; equal ones every time."""
    draw = random.Random(0)

    def around(mean: int) -> int:
        return max(1, round(mean * draw.uniform(1 - _SPREAD, 1 + _SPREAD)))

    return [
        Asked(
            tuple(draw.randrange(3, vocab_size) for _ in range(around(scale.prompt_tokens))),
            around(scale.new_tokens),
        )
        for _ in range(scale.requests)
    ]


class ModelFolder:
    """A folder with a model's configuration, as long as it is open."""

    def __init__(self, shape: Shape, dtype: DType) -> None:
        self._stack = ExitStack()
        self.path = Path(self._stack.enter_context(TemporaryDirectory()))
        self.spec = shape.write(self.path, dtype)

    def __enter__(self) -> "ModelFolder":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


def config_for(
    scale: Scale, model: Path, memory_bytes: int, options: Mapping[str, Any]
) -> EngineConfig:
    """An engine's configuration on the measured device, with random weights.

    Args:
        options: what is not usual.
    """
    longest = round((scale.prompt_tokens + scale.new_tokens) * (1 + _SPREAD)) + 2
    usual: dict[str, Any] = {
        "model": str(model),
        "accelerator": scale.accelerator,
        "gpu_memory": str(memory_bytes),
        "cpu_memory": str(scale.host_bytes),
        "load_format": "dummy",
        "max_model_len": longest,
        "max_num_seqs": scale.rows,
        "max_num_batched_tokens": min(2048, scale.rows * longest),
        "enable_prefix_caching": False,
    }
    return EngineConfig.from_options({**usual, **options})


def built(config: EngineConfig) -> EngineCore:
    """The engine, warmed up.

    Raises:
        TandemError: it cannot run so.
    """
    return build_engine_core(config)


@dataclass(frozen=True, slots=True)
class JobRate:
    """A job, or its part until it was cut short."""

    tokens: int
    wall_s: float
    complete: bool

    @property
    def tokens_per_s(self) -> float:
        """New tokens over the time from the first request to the last token."""
        return self.tokens / self.wall_s


def run_job(core: EngineCore, asked: Sequence[Asked], limit: Deadline) -> JobRate:
    """All requests at once, until they have their tokens or time is out."""
    for number, each in enumerate(asked):
        params = SamplingParams(max_tokens=each.new_tokens, temperature=0.0, ignore_eos=True)
        core.add_request(EngineRequest(str(number), each.prompt, params))
    left = {str(number) for number in range(len(asked))}
    begin = limit.clock()
    end, tokens = begin, 0
    while left and (limit.left_s or not tokens):
        for output in core.step():
            tokens += len(output.token_ids)
            end = limit.clock()
            if output.finish_reason is not None:
                left.discard(output.request_id)
    complete = not left
    for name in left:
        core.abort(name)
    while core.has_work():
        core.step()
    return JobRate(tokens, end - begin, complete)
