"""Hugging Face transformers as a generator, with this engine's weights.

Its best on a CPU: `generate` under `torch.inference_mode` with SDPA and its default growing cache,
prompts of equal length, so that no padding is computed and no mask applied.
"""

import logging
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationConfig,
    StoppingCriteria,
    StoppingCriteriaList,
)

from tandem.bench.generation import Generated, Prompts, Stamps
from tandem.bench.host_model import dummy_model
from tandem.models.architecture import load_architecture
from tandem.models.checkpoint_loader import checkpoint_tensors


class TransformersGenerator:
    """Runs batches through `generate`.

    Args:
        directory: holds a `config.json`; weights are those of `--load-format dummy`.
    """

    def __init__(self, directory: Path) -> None:
        self._model: Any = with_dummy_weights(directory)
        # It warns once that greedy decoding ignores temperatures, and of a missing pad token.
        logging.getLogger("transformers").setLevel(logging.ERROR)

    def generate(self, prompts: Prompts, new_tokens: int) -> Generated:
        """See `Generator`."""
        ids = torch.tensor(prompts)
        stamps = Stamps()
        with torch.inference_mode():
            output = self._model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                generation_config=GenerationConfig(
                    max_new_tokens=new_tokens, do_sample=False, pad_token_id=0
                ),
                stopping_criteria=StoppingCriteriaList([StampEachStep(stamps, len(prompts))]),
            )
        return stamps.result(output[:, ids.shape[1] :].tolist())


def with_dummy_weights(directory: Path) -> Any:
    """A model of transformers' with the weights of `--load-format dummy`."""
    model = dummy_model(directory)
    config = AutoConfig.from_pretrained(directory, local_files_only=True)
    made: Any = AutoModelForCausalLM.from_config(
        config, dtype=model.dtype, attn_implementation="sdpa"
    )
    tensors = checkpoint_tensors(model.weights, load_architecture(model.spec.architecture))
    made.load_state_dict(tensors, strict=True, assign=True)
    return made.eval()


class StampEachStep(StoppingCriteria):
    """Called after every step with all tokens so far; never stops."""

    def __init__(self, stamps: Stamps, batch: int) -> None:
        self._stamps = stamps
        self._batch = batch

    def __call__(self, input_ids: torch.Tensor, scores: object, **options: object) -> torch.Tensor:
        """A token of every prompt has come."""
        del scores, options
        self._stamps.stamp()
        return torch.zeros(self._batch, dtype=torch.bool, device=input_ids.device)
