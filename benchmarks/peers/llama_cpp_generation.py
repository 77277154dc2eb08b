"""llama.cpp as a generator: its batched C interface, one sequence per prompt.

Its settings are those that its documentation recommends for this: see `benchmarks/README.md`.
"""

import os
import sys
from pathlib import Path

import llama_cpp as ll  # pyright: ignore[reportMissingImports]
import numpy as np

from tandem.bench.generation import Generated, Prompts, Stamps

_KV_MULTIPLE = 256
_BATCH_TOKENS = 1024
_UBATCH_TOKENS = 512
_ERROR = 4  # GGML_LOG_LEVEL_ERROR


@ll.llama_log_callback
def _show_errors(level: int, text: bytes, _: object) -> None:
    """Of the hundreds of lines per context, those that matter."""
    if level == _ERROR:
        sys.stderr.write(text.decode(errors="replace"))


class LlamaCppGenerator:
    """Runs batches through `llama_decode`.

    Args:
        model: a GGUF file.
    """

    def __init__(self, model: Path) -> None:
        ll.llama_log_set(_show_errors, None)
        ll.llama_backend_init()
        parameters = ll.llama_model_default_params()
        parameters.n_gpu_layers = 0
        self._model = ll.llama_model_load_from_file(str(model).encode(), parameters)
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {model}")
        self._vocab_size = ll.llama_vocab_n_tokens(ll.llama_model_get_vocab(self._model))
        self._context, self._shape = None, (0, 0)

    def generate(self, prompts: Prompts, new_tokens: int) -> Generated:
        """See `Generator`."""
        self._open_context(len(prompts), len(prompts[0]) + new_tokens)
        stamps = Stamps()
        ll.llama_memory_clear(ll.llama_get_memory(self._context), False)
        last = self._feed(np.array(prompts, dtype=np.int32), 0)
        stamps.stamp()
        columns = [last]
        for position in range(len(prompts[0]), len(prompts[0]) + new_tokens - 1):
            last = self._feed(last[:, None], position)
            stamps.stamp()
            columns.append(last)
        return stamps.result(np.stack(columns, axis=1).tolist())

    def _open_context(self, sequences: int, tokens: int) -> None:
        """A context for `sequences` of up to `tokens`, kept while the shape stays."""
        per_sequence = -(-tokens // _KV_MULTIPLE) * _KV_MULTIPLE
        if self._shape == (sequences, per_sequence):
            return
        if self._context is not None:
            ll.llama_free(self._context)
        parameters = ll.llama_context_default_params()
        parameters.n_ctx = sequences * per_sequence
        parameters.n_seq_max = sequences
        parameters.n_batch = _BATCH_TOKENS
        parameters.n_ubatch = _UBATCH_TOKENS
        parameters.n_threads = parameters.n_threads_batch = len(os.sched_getaffinity(0))
        parameters.flash_attn_type = ll.LLAMA_FLASH_ATTN_TYPE_ENABLED
        self._context = ll.llama_init_from_model(self._model, parameters)
        if not self._context:
            raise RuntimeError("llama.cpp cannot make a context")
        self._shape = sequences, per_sequence

    # tokens: [sequences, tokens of each]
    def _feed(self, tokens: np.ndarray, first_position: int) -> np.ndarray:
        """Compute tokens of all sequences from one position on; the greedy next of each."""
        sequences, length = tokens.shape
        batch = ll.llama_batch_init(tokens.size, 0, 1)
        try:
            batch.n_tokens = tokens.size
            for index, (sequence, offset) in enumerate(np.ndindex(sequences, length)):
                batch.token[index] = tokens[sequence, offset]
                batch.pos[index] = first_position + offset
                batch.n_seq_id[index] = 1
                batch.seq_id[index][0] = sequence
                batch.logits[index] = offset == length - 1
            status = ll.llama_decode(self._context, batch)
        finally:
            ll.llama_batch_free(batch)
        if status != 0:
            raise RuntimeError(f"llama_decode failed with {status}")
        logits = np.ctypeslib.as_array(
            ll.llama_get_logits(self._context), shape=(sequences, self._vocab_size)
        )
        return logits.argmax(axis=1).astype(np.int32)
