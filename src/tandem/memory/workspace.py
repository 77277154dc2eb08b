"""Activations and workspaces of a step at its largest, predicted from shapes."""

from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec

_FP32_BYTES = 4
KERNEL_SCRATCH_BYTES = 64 << 20
"""Gathered pages and score blocks inside one attention call stay below this."""


def workspace_bytes(spec: ModelSpec, dtype: DType, max_tokens: int, max_logits: int) -> int:
    """Bytes of all buffers that live between operations, for `max_tokens` tokens in a step.

    Counted are, per token: the residual, the normed input, q, k, v, the attention's result, gate,
        up
    and their product in the model's dtype; two partial results with their log-sum-exp in fp32; and
    ids and positions. Logits are fp32, twice: as they come and as they are filtered.
    """
    hidden, inner = spec.hidden_size, spec.intermediate_size
    activations = 2 * hidden + 2 * spec.q_size + 2 * spec.kv_size + 3 * inner
    partials = 2 * (spec.q_size + spec.num_heads) * _FP32_BYTES
    rotation = 2 * spec.head_dim * _FP32_BYTES
    per_token = activations * dtype.size_bytes + partials + rotation + 4 * 8
    return max_tokens * per_token + 2 * max_logits * spec.vocab_size * _FP32_BYTES
