"""The models that the papers measured, by the `config.json` of their checkpoints."""

from collections.abc import Mapping

from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec, RopeSpec


def _opt(layers: int, hidden_size: int, heads: int) -> ModelSpec:
    return ModelSpec(
        architecture="opt",
        vocab_size=50272,
        hidden_size=hidden_size,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=hidden_size // heads,
        intermediate_size=4 * hidden_size,
        max_positions=2048,
        norm="layer",
        activation="relu",
        gated=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        position_offset=2,
        tie_embeddings=True,
        dtype=DType.FLOAT16,
    )


def _llama(
    layers: int, hidden_size: int, heads: int, intermediate_size: int, kv_heads: int | None = None
) -> ModelSpec:
    return ModelSpec(
        architecture="llama",
        vocab_size=32000 if kv_heads is None else 128256,
        hidden_size=hidden_size,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads or heads,
        head_dim=hidden_size // heads,
        intermediate_size=intermediate_size,
        max_positions=2048 if kv_heads is None else 131072,
        rope=RopeSpec(),
        dtype=DType.FLOAT16,
    )


MODELS: Mapping[str, ModelSpec] = {
    "OPT-6.7B": _opt(32, 4096, 32),
    "OPT-13B": _opt(40, 5120, 40),
    "OPT-30B": _opt(48, 7168, 56),
    "OPT-66B": _opt(64, 9216, 72),
    "LLaMA-30B": _llama(60, 6656, 52, 17920),
    "LLaMA-65B": _llama(80, 8192, 64, 22016),
    "LLaMA-2-7B": _llama(32, 4096, 32, 11008),
    "LLaMA-3.1-8B": _llama(32, 4096, 32, 14336, kv_heads=8),
    "LLaMA-3.1-70B": _llama(80, 8192, 64, 28672, kv_heads=8),
}
