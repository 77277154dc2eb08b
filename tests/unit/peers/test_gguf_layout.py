"""llama.cpp's layout of the same model."""

import numpy as np
import pytest
from benchmarks.peers.gguf_layout import gguf_name, gguf_tensor

HEADS, HEAD_DIM, INPUTS = 3, 8, 5
CONFIG = {"num_attention_heads": HEADS, "num_key_value_heads": 1}


# heads: [heads, head_dim]
def rotate_halves(heads: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """As checkpoints mean it: dimensions i and i + head_dim / 2."""
    low, high = heads[:, : HEAD_DIM // 2], heads[:, HEAD_DIM // 2 :]
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([low * cos - high * sin, high * cos + low * sin], axis=1)


# heads: [heads, head_dim]
def rotate_neighbours(heads: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """As llama.cpp does it: dimensions 2i and 2i + 1."""
    even, odd = heads[:, ::2], heads[:, 1::2]
    cos, sin = np.cos(angles), np.sin(angles)
    rotated = [even * cos - odd * sin, odd * cos + even * sin]
    return np.stack(rotated, axis=2).reshape(heads.shape)


def test_scores_are_those_of_the_checkpoint() -> None:
    draw = np.random.default_rng(0)
    query = draw.normal(size=(HEADS * HEAD_DIM, INPUTS))
    key = draw.normal(size=(HEAD_DIM, INPUTS))
    x, y = draw.normal(size=INPUTS), draw.normal(size=INPUTS)
    angles = draw.normal(size=HEAD_DIM // 2)

    q = rotate_halves((query @ x).reshape(HEADS, HEAD_DIM), angles)
    k = rotate_halves((key @ y).reshape(1, HEAD_DIM), 2 * angles)

    their_query = gguf_tensor("model.layers.0.self_attn.q_proj.weight", query, CONFIG)
    their_key = gguf_tensor("model.layers.0.self_attn.k_proj.weight", key, CONFIG)
    theirs_q = rotate_neighbours((their_query @ x).reshape(HEADS, HEAD_DIM), angles)
    theirs_k = rotate_neighbours((their_key @ y).reshape(1, HEAD_DIM), 2 * angles)
    np.testing.assert_allclose(theirs_q @ theirs_k.T, q @ k.T)


def test_matrices_stay_and_norms_widen() -> None:
    value = np.arange(6, dtype=np.float16).reshape(2, 3)
    assert gguf_tensor("model.layers.0.self_attn.v_proj.weight", value, CONFIG) is value
    norm = gguf_tensor("model.norm.weight", np.ones(4, dtype=np.float16), CONFIG)
    assert norm.dtype == np.float32


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("lm_head.weight", "output.weight"),
        ("model.layers.11.mlp.down_proj.weight", "blk.11.ffn_down.weight"),
        ("model.layers.0.input_layernorm.weight", "blk.0.attn_norm.weight"),
    ],
)
def test_names(name: str, theirs: str) -> None:
    assert gguf_name(name) == theirs
