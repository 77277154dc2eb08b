"""How llama.cpp names and lays out the tensors of a Llama checkpoint."""

from typing import Any

import numpy as np

_OUTER = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_INNER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """The name that llama.cpp gives a tensor of a checkpoint."""
    if name in _OUTER:
        return _OUTER[name]
    layer, part = name.removeprefix("model.layers.").removesuffix(".weight").split(".", 1)
    return f"blk.{layer}.{_INNER[part]}.weight"


# tensor: the stored shape, [out, in] for matrices
def gguf_tensor(name: str, tensor: np.ndarray, config: dict[str, Any]) -> np.ndarray:
    """The tensor as llama.cpp wants it.

    Args:
        config: the checkpoint's `config.json`.
    """
    if tensor.ndim == 1:
        return tensor.astype(np.float32)
    if name.endswith("q_proj.weight"):
        return _pairs_beside_each_other(tensor, config["num_attention_heads"])
    if name.endswith("k_proj.weight"):
        return _pairs_beside_each_other(tensor, config["num_key_value_heads"])
    return tensor


# weight: [heads * head_dim, in]
def _pairs_beside_each_other(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp rotates dimensions 2i and 2i + 1 of a head, checkpoints mean i and i + half."""
    rows, columns = weight.shape
    halves = weight.reshape(heads, 2, rows // heads // 2, columns)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(rows, columns))
