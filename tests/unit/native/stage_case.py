"""A small model in torch and compiled, and a step for it: what tests of its stages share."""

from dataclasses import replace

import numpy as np
import torch

from tandem.kernels.compiled_kernels import CompiledKernels, SplitBatch
from tandem.kernels.native_pool import NativePool
from tandem.kernels.pages import PageShape
from tandem.models.dummy_weights import fill_dummy_weights
from tandem.models.layer_state import LayerState
from tandem.models.model import Model
from tandem.models.native_stages import NativeStages
from tandem.models.weights import allocate_weights
from tandem.plan.binding import TierAttention
from tandem.spec.model import ExpertSpec, ModelSpec, RopeSpec

SPEC = ModelSpec("llama", 64, 24, 2, 6, 2, 8, 40, 512, qk_norm=True, rope=RopeSpec())
LOCAL = replace(
    SPEC, post_norms=True, attention_soft_cap=0.5, windows=(4, 0), local_rope=RopeSpec(9.0)
)
"""Layers that differ in window and rotation."""
MIXED = replace(SPEC, experts=ExpertSpec(6, 2, 16, dense_layers=(0,)))
"""A layer with experts after one without."""
SHAPE = PageShape(SPEC.num_kv_heads, 4, SPEC.head_dim)
POOL = NativePool(2)
STEP = TierAttention(  # two rows for the decode kernel, one for the prefill kernel
    token_index=None,
    query_start=np.array([0, 1, 4, 14], np.int32),
    num_decode=1,
    positions=np.array([8, 5, 6, 7, *range(2, 12)], np.int32),
    block_table=np.array([[4, 0, 5], [1, 3, 9], [2, 6, 7]], np.int32),
    block_index=None,
)
SLOTS = torch.tensor([20, 13, 14, 15, 10, 11, *range(24, 32)])


def models(spec: ModelSpec = SPEC, dtype: torch.dtype = torch.bfloat16) -> tuple[Model, Model]:
    """In torch and compiled, over the same weights."""
    weights = allocate_weights(spec, dtype, torch.device("cpu"))
    fill_dummy_weights(weights, spec, 0, None)
    for parameter in weights.parameters():
        if "norm" in parameter.name:  # made the identity, which would hide a forgotten one
            parameter.tensor.add_(torch.rand(parameter.tensor.shape) - 0.5)
    stages = NativeStages(spec, weights, POOL)
    in_torch = Model(spec, weights, torch.float32)
    return in_torch, Model(spec, weights, torch.float32, stages)


def state(tokens: int = 5) -> LayerState:
    torch.manual_seed(tokens)
    return LayerState(torch.arange(tokens) + 3, torch.randn(tokens, SPEC.hidden_size))


def kernels_of(spec: ModelSpec) -> CompiledKernels:
    scale, soft_cap = spec.attention_scale, spec.attention_soft_cap
    return CompiledKernels(POOL, spec.num_heads, SHAPE, scale, soft_cap)


def planned(rows: slice, spec: ModelSpec = SPEC) -> dict[int, SplitBatch]:
    """Some rows of `STEP` for each window, as the kernels divide them."""
    step = STEP.rows(rows.start, rows.stop)
    return {window: kernels_of(spec).plan(step, window) for window in set(spec.layer_windows)}
