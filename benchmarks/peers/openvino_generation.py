"""OpenVINO as a generator: GenAI's continuous batching, over token ids."""

import itertools
import os
from pathlib import Path

import numpy as np
import openvino  # pyright: ignore[reportMissingImports]
import openvino_genai  # pyright: ignore[reportMissingImports]

from tandem.bench.generation import Generated, Prompts, Stamps

_CACHE_GB = 1
_BATCH_TOKENS = 1024


class OpenVinoGenerator:
    """Runs requests through `ContinuousBatchingPipeline`.

    Args:
        model: directory of an exported model.
    """

    def __init__(self, model: Path) -> None:
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = _CACHE_GB
        scheduler.max_num_batched_tokens = _BATCH_TOKENS
        scheduler.enable_prefix_caching = False
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(
            str(model),
            scheduler_config=scheduler,
            device="CPU",
            properties={"INFERENCE_NUM_THREADS": len(os.sched_getaffinity(0))},
        )
        self._numbers = itertools.count()

    def generate(self, prompts: Prompts, new_tokens: int) -> Generated:
        """See `Generator`."""
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = new_tokens
        config.ignore_eos = True
        config.do_sample = False
        stamps = Stamps()
        handles = [
            self._pipeline.add_request(
                next(self._numbers), openvino.Tensor(np.array([prompt], dtype=np.int64)), config
            )
            for prompt in prompts
        ]
        found: list[list[int]] = [[] for _ in prompts]
        complete = 0
        while self._pipeline.has_non_finished_requests():
            self._pipeline.step()
            for handle, ids in zip(handles, found, strict=True):
                if handle.can_read():
                    (output,) = handle.read().values()
                    ids += output.generated_ids
            shortest = min(map(len, found))
            if shortest > complete:
                complete = shortest
                stamps.stamp()
        return stamps.result(found)
