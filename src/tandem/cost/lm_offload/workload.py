"""What is generated, and where its tensors lie (LM-Offload, table 2)."""

from dataclasses import dataclass

BASE_BITS = 16


@dataclass(frozen=True, slots=True)
class OffloadWorkload:
    """A zig-zag block that generates with one model.

    Attributes:
        prompt, generate: tokens per sequence: `s` and `n`.
        rows: sequences of the block: `bls`; computed in `batches` equal batches per layer.
        layer_weights: elements of one layer's matrices: `4 h1^2 + 2 h1 h2` in the paper.
        kv_size: elements per token of keys (or values); `h1` with as many heads for both.
    """

    prompt: int
    generate: int
    rows: int
    layers: int
    hidden_size: int
    kv_size: int
    layer_weights: int
    batches: int = 1

    def __post_init__(self) -> None:
        if min(self.prompt, self.generate, self.rows, self.layers, self.batches) < 1:
            raise ValueError(f"nothing to generate in {self}")

    @property
    def mean_context(self) -> float:
        """Cached tokens of a sequence at half of the generation: `s + n / 2` (equation 18)."""
        return self.prompt + self.generate / 2

    @property
    def prefill_kv(self) -> int:
        """Elements of one layer's KV cache after the prefill (equation 17)."""
        return 2 * (self.prompt + 1) * self.kv_size * self.rows

    @property
    def old_kv(self) -> float:
        """Mean elements of one layer's KV cache that a step reads.

        Equation 18 multiplies this by `n`, although a task is one of `n` steps.
        """
        return 2 * self.mean_context * self.kv_size * self.rows

    @property
    def new_kv(self) -> int:
        """Elements that a step adds to one layer's KV cache; equation 19 less its factor `n`."""
        return 2 * self.kv_size * self.rows

    @property
    def activations(self) -> int:
        """Elements that leave one layer for the next in a step."""
        return self.hidden_size * self.rows


@dataclass(frozen=True, slots=True)
class OffloadPolicy:
    """Shares of each tensor on the host, 0 to 1, and bits per element.

    Attributes:
        weights_on_host: `wc`.
        attention_on_cpu: keys and values stay on the host, the CPU attends to them.
        weight_bits, kv_bits: of what lies on the host; 16: not quantized.
        resident_weight_bits: of the weights on the accelerator.
    """

    weights_on_host: float
    cache_on_host: float = 1.0
    activations_on_host: float = 1.0
    attention_on_cpu: bool = False
    weight_bits: int = BASE_BITS
    kv_bits: int = BASE_BITS
    resident_weight_bits: int = BASE_BITS

    def __post_init__(self) -> None:
        shares = (self.weights_on_host, self.cache_on_host, self.activations_on_host)
        if any(not 0 <= share <= 1 for share in shares):
            raise ValueError(f"shares on the host must be between 0 and 1, not {shares}")
