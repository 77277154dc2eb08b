"""A whole forward pass over one sequence with the simplest possible attention."""

from collections.abc import Callable

import torch
from torch import Tensor

from tandem.models.layer_state import LayerState
from tandem.models.model import Model
from tandem.spec.operations import Stage

RunLayerPart = Callable[[Model, Stage, int, LayerState], None]


def causal_attention(model: Model, state: LayerState, layer: int) -> Tensor:
    """Attention of a sequence to itself in one layer: [T, heads, head_dim]."""
    buffers = state.buffers()
    group = model.spec.num_heads // model.spec.num_kv_heads
    k, v = (buffers[name].repeat_interleave(group, 1) for name in ("k", "v"))
    scores = torch.einsum("qhd,khd->hqk", buffers["q"], k) * model.spec.attention_scale
    cap, window = model.spec.attention_soft_cap, model.spec.layer_windows[layer]
    if cap:
        scores = cap * torch.tanh(scores / cap)
    age = state.positions[:, None] - state.positions[None, :]
    unseen = (age < 0) | (age >= window) if window else age < 0
    weights = scores.masked_fill(unseen, float("-inf")).softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, v)


def forward(model: Model, token_ids: Tensor, run: RunLayerPart | None = None) -> Tensor:
    """Logits [T, vocab] of a sequence; `run` executes `pre` and `post` (default: the model)."""
    execute = run or (lambda model, stage, layer, state: model.run(stage, layer, state))
    positions = torch.arange(len(token_ids))
    state = LayerState(positions, model.embed(token_ids, positions))
    for layer in range(model.spec.num_layers):
        execute(model, model.stages(layer).pre, layer, state)
        state.finish_attention(causal_attention(model, state, layer))
        execute(model, model.stages(layer).post, layer, state)
    return model.logits(state.residual)
