"""Facts about a model's architecture, read from its `config.json`."""

from dataclasses import dataclass, replace
from typing import Literal

from tandem.spec.dtype import DType

RopeKind = Literal["default", "linear", "dynamic", "llama3", "yarn", "longrope"]


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """Rotary position embedding: which of these count depends on `kind`.

    Attributes:
        factor: of linear, llama3 and yarn: how much slower the slowest rotations become; of
            dynamic, how much longer sequences may get.
        low_freq_factor, high_freq_factor: of llama3.
        original_max_positions: what the model was pretrained with.
        beta_fast, beta_slow, truncate: of yarn: rotations over the original positions between which
            frequencies are blended, and whether to round that range to whole pairs.
        divisors: of longrope: one per rotated pair. long_divisors: in sequences beyond the
            original positions.
        amplitude: what cosines and sines are multiplied by.
        longest_positions: of dynamic and longrope: how far `for_length` can go.
    """

    theta: float = 10000.0
    kind: RopeKind = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_positions: int = 8192
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    divisors: tuple[float, ...] = ()
    long_divisors: tuple[float, ...] = ()
    amplitude: float = 1.0
    longest_positions: int = 0

    def for_length(self, length: int, head_dim: int) -> "RopeSpec":
        """How a sequence of `length` tokens is rotated.

        LongRoPE (section 3.3) changes its divisors beyond the original positions. Dynamic NTK
        scaling raises theta by `(factor L / original - (factor - 1)) ^ (d / (d - 2))`.
        """
        if length <= self.original_max_positions:
            return self
        if self.kind == "longrope":
            return replace(self, divisors=self.long_divisors)
        if self.kind == "dynamic":
            stretch = self.factor * length / self.original_max_positions - (self.factor - 1)
            return replace(self, theta=self.theta * stretch ** (head_dim / (head_dim - 2)))
        return self


@dataclass(frozen=True, slots=True)
class ExpertSpec:
    """A mixture of experts in place of a layer's feed-forward.

    A router scores all experts; a token goes to the best of them, and their results are added up,
    weighted by the softmax of the scores over all experts.

    Attributes:
        count: experts of a layer.
        per_token: how many of them a token goes to.
        intermediate_size: of one expert.
        renormalized: the weights of a token's experts are made to sum to one.
        dense_layers: layers with a plain feed-forward instead, of the model's `intermediate_size`.
    """

    count: int
    per_token: int
    intermediate_size: int
    renormalized: bool = True
    dense_layers: tuple[int, ...] = ()

    def touched_share(self, tokens: float) -> float:
        """Expected share of a layer's experts that some of `tokens` tokens go to.

        Each token's choice is taken to be uniform, and independent of the others': 1 - (1 - k/n)^t.
        """
        return 1.0 - (1.0 - self.per_token / self.count) ** tokens


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One decoder-only transformer as data; architectures differ only in these values.

    Attributes:
        architecture: registry key, e.g. "llama", "qwen3", "opt".
        norm: "rms" or "layer" (the latter with bias).
        norm_offset: added to the stored weights of all norms (Gemma: 1).
        post_norms: a further norm of what attention and feed-forward add to the residual (Gemma).
        gated: True for `down(act(gate(x)) * up(x))`, False for `fc2(act(fc1(x)))`.
        qk_norm: RMS norm over head_dim of each query and key head before rotation (Qwen3).
        embedding_scale: factor on token embeddings.
        query_scalar: queries are divided by its square root; None: `head_dim`.
        attention_soft_cap: scores become `cap * tanh(score / cap)`; 0: none.
        logit_soft_cap: likewise of logits.
        max_positions: how long a sequence may get; see `for_length`.
        windows: of each layer, positions that a token sees, its own included; 0: all before it.
            Empty: 0 in all layers.
        rope: of all layers. local_rope: of those with a window, if not the same (Gemma 3).
        experts: of layers with a mixture of experts; None: every layer has a plain feed-forward.
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
    norm_offset: float = 0.0
    post_norms: bool = False
    activation: Literal["silu", "relu", "gelu", "gelu_tanh"] = "silu"
    gated: bool = True
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    embedding_scale: float = 1.0
    query_scalar: float | None = None
    attention_soft_cap: float = 0.0
    logit_soft_cap: float = 0.0
    windows: tuple[int, ...] = ()
    rope: RopeSpec | None = None
    local_rope: RopeSpec | None = None
    experts: ExpertSpec | None = None
    position_offset: int | None = None
    tie_embeddings: bool = False
    dtype: DType = DType.BFLOAT16
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None

    @property
    def longest_positions(self) -> int:
        """The most that `for_length` can make of `max_positions`."""
        reach = 0 if self.rope is None else self.rope.longest_positions
        return max(self.max_positions, reach)

    def for_length(self, length: int | None) -> "ModelSpec":
        """The model for sequences of up to `length` tokens: the same where its rotation does.

        All of its sequences, shorter ones too, are then rotated as one of `length` tokens.
        """
        if self.rope is None or not self.max_positions < (length or 0) <= self.longest_positions:
            return self
        assert length is not None
        rope = self.rope.for_length(length, self.head_dim)
        return replace(self, rope=rope, max_positions=length)

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
        """Factor on query-key products: `query_scalar` or head_dim, to the power of -0.5."""
        return (self.head_dim if self.query_scalar is None else self.query_scalar) ** -0.5

    @property
    def layer_windows(self) -> tuple[int, ...]:
        """`windows` with an entry for every layer."""
        return self.windows or (0,) * self.num_layers

    def routed_experts(self, layer: int) -> ExpertSpec | None:
        """The mixture of experts that a layer has; None: a plain feed-forward."""
        is_dense = self.experts is None or layer in self.experts.dense_layers
        return None if is_dense else self.experts

    @property
    def dense_layers(self) -> tuple[int, ...]:
        """In a model with experts, layers without, which are smaller than the others."""
        return () if self.experts is None else self.experts.dense_layers

    @property
    def distinct_layers(self) -> tuple[int, ...]:
        """The first layer of each kind: with a mixture of experts, and with a plain feed-forward.
        Layers of a kind have the same operations.
        """
        kinds = {self.routed_experts(i) is None: i for i in reversed(range(self.num_layers))}
        return tuple(sorted(kinds.values()))

    @property
    def ropes(self) -> tuple[RopeSpec, ...]:
        """The different rotary embeddings, in the order of `rope_index`; none if positions are
        learned.
        """
        return tuple(rope for rope in (self.rope, self.local_rope) if rope is not None)

    def rope_index(self, layer: int) -> int:
        """Which of `ropes` a layer has."""
        return int(self.local_rope is not None and self.layer_windows[layer] > 0)
