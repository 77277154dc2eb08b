"""transformers with random weights on the measured device: continuous batching, and generation
with the weights that do not fit in host memory (accelerate).
"""

import importlib
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from benchmarks.gpu.cases import CaseError
from benchmarks.gpu.deadline import Deadline
from benchmarks.gpu.jobs import Asked, JobRate
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    ContinuousBatchingConfig,
    GenerationConfig,
)

from tandem.bench.generation import Generated, Prompts, Stamps
from tandem.bench.transformers_generation import StampEachStep, with_dummy_weights
from tandem.spec.dtype import DType

_POLL_S = 1.0


class PeerError(CaseError):
    """The peer cannot run here; says why."""


class ContinuousBatching:
    """Its own scheduler and paged cache, its own choice of attention, CUDA graphs, overlap.

    Args:
        directory: holds a `config.json`; weights are random.
        kv_tokens: for which its cache has room. step_tokens: of a step at most.
        asked: the job, by which it sizes its inputs.
    """

    def __init__(
        self,
        directory: Path,
        device: torch.device,
        dtype: DType,
        kv_tokens: int,
        step_tokens: int,
        asked: Sequence[Asked],
    ) -> None:
        self._directory, self._device, self._dtype = directory, device, dtype
        settings = ContinuousBatchingConfig()
        # what transformers 5.17 called the size of a block is a page's from 5.18 on
        size: Any = getattr(settings, "page_size", None) or settings.block_size
        settings.num_blocks = max(1, kv_tokens // size)
        # left to itself it takes as many tokens a step as fill the memory that is free beside so
        # small a cache: more than the cache holds, for which it then warms up
        settings.max_batch_tokens = max(size, min(step_tokens, kv_tokens // 2))
        self._settings = settings
        self._most_tokens = max(each.new_tokens for each in asked)
        self._stack = ExitStack()
        self._model: Any = None
        self._manager: Any = None

    def __enter__(self) -> "ContinuousBatching":
        """Make the model, allocate its cache and capture its graphs.

        Raises:
            PeerError: it cannot.
        """
        generation = GenerationConfig(
            max_new_tokens=self._most_tokens, do_sample=False, pad_token_id=0
        )
        try:
            self._model = self._made()
            manager = self._model.continuous_batching_context_manager(
                generation_config=generation,
                continuous_batching_config=self._settings,
                block=True,
                timeout=5,
            )
            self._manager = self._stack.enter_context(manager)
        except Exception as error:  # the peer's own errors are of any type
            raise PeerError(f"{type(error).__name__}: {error}") from error
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        del self._model

    @property
    def attention(self) -> str:
        """What attends, by transformers' name: it has changed to the best that is installed."""
        return str(self._model.config._attn_implementation)

    def _made(self) -> Any:
        logging.getLogger("transformers").setLevel(logging.ERROR)
        config = AutoConfig.from_pretrained(self._directory, local_files_only=True)
        with self._device:
            made = AutoModelForCausalLM.from_config(
                config, dtype=getattr(torch, self._dtype.value), attn_implementation="sdpa"
            )
        return made.eval()

    def run(self, asked: Sequence[Asked], limit: Deadline) -> JobRate:
        """All requests at once; it tells of whole requests: a job is not cut short, but given up.

        Raises:
            PeerError: its thread ended, a request failed, or time is out.
        """
        begin = limit.clock()
        for each in asked:
            self._manager.add_request(list(each.prompt), max_new_tokens=each.new_tokens)
        tokens = ended = 0
        end = begin
        while ended < len(asked):
            result = self._manager.get_result(timeout=_POLL_S)
            if result is None:
                if not self._manager.is_running():
                    raise PeerError("its generation thread ended")
                if not limit.left_s:
                    raise PeerError(f"a job took more than {limit.clock() - begin:.0f} s")
                continue
            if result.is_finished():
                if result.error is not None:
                    raise PeerError(f"a request failed: {result.error}")
                ended, end = ended + 1, limit.clock()
                tokens += len(result.generated_tokens)
        return JobRate(tokens, end - begin, complete=True)


class Offloading:
    """`generate` with as many layers on the device as fit, the others in host memory (accelerate).

    Args:
        directory: holds a `config.json`; weights are those of `--load-format dummy`.
        memory_bytes: of the device, that weights may take.
        cache: implementation of the KV cache, by transformers' name; None: its usual one, on the
            device.

    Raises:
        PeerError: accelerate is not installed.
    """

    def __init__(self, directory: Path, memory_bytes: int, cache: str | None = None) -> None:
        try:
            accelerate: Any = importlib.import_module("accelerate")
        except ImportError:
            raise PeerError("accelerate is not installed") from None
        logging.getLogger("transformers").setLevel(logging.ERROR)
        self._cache = cache
        model = with_dummy_weights(directory)
        room: Any = {0: memory_bytes, "cpu": 1 << 40}
        whole = model._no_split_modules
        places = accelerate.infer_auto_device_map(model, room, no_split_module_classes=list(whole))
        self._model: Any = accelerate.dispatch_model(model, places)

    def generate(self, prompts: Prompts, new_tokens: int) -> Generated:
        """See `Generator`."""
        ids = torch.tensor(prompts, device="cuda")
        stamps = Stamps()
        with torch.inference_mode():
            output = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                generation_config=GenerationConfig(
                    max_new_tokens=new_tokens,
                    do_sample=False,
                    pad_token_id=0,
                    cache_implementation=self._cache,
                ),
                stopping_criteria=[StampEachStep(stamps, len(prompts))],
            )
        torch.cuda.synchronize()
        return stamps.result(output[:, ids.shape[1] :].tolist())
