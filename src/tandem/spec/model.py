"""Facts about a model's architecture, read from its `config.json`."""

from dataclasses import dataclass
from typing import Literal

from tandem.spec.dtype import DType


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position embedding. `kind == "llama3"` uses the four scaling fields (Llama 3.1)."""

    theta: float = 10000.0
    kind: Literal["default", "llama3"] = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_positions: int = 8192


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One decoder-only transformer as data; architectures differ only in these values.

    Attributes:
        architecture: registry key, e.g. "llama", "qwen3", "opt".
        norm: "rms" or "layer" (the latter with bias).
        gated: True for `down(act(gate(x)) * up(x))`, False for `fc2(act(fc1(x)))`.
        qk_norm: RMS norm over head_dim of each query and key head before rotation (Qwen3).
        position_offset: offset into learned position embeddings (OPT: 2), None if rotary.
        dtype: element type in which the checkpoint is stored.
        eos_token_ids: tokens that end a sequence (from config and generation config).
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    max_positions: int
    norm: Literal["rms", "layer"] = "rms"
    norm_eps: float = 1e-5
    activation: Literal["silu", "relu", "gelu", "gelu_tanh"] = "silu"
    gated: bool = True
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    rope: RopeSpec | None = None
    position_offset: int | None = None
    tie_embeddings: bool = False
    dtype: DType = DType.BFLOAT16
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None

    @property
    def q_size(self) -> int:
        """Columns of the query projection: num_heads * head_dim."""
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        """Columns of the key (or value) projection: num_kv_heads * head_dim."""
        return self.num_kv_heads * self.head_dim

    @property
    def attention_scale(self) -> float:
        """Factor on query-key products: head_dim ** -0.5."""
        return self.head_dim**-0.5
