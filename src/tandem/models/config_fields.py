"""Readings of `config.json` that architectures share: dtype, activation, heads."""

from typing import Any, Literal, cast

from tandem.models.config_reader import ConfigReader
from tandem.spec.dtype import DType

Activation = Literal["silu", "relu", "gelu", "gelu_tanh"]
_ACTIVATIONS: dict[str, Activation] = {
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


def read_dtype(config: ConfigReader) -> DType:
    """Element type of the checkpoint (`dtype`, formerly `torch_dtype`); float32 if not stated.

    Raises:
        ModelError: a type other than float32, float16 and bfloat16.
    """
    name = config.get("dtype") or config.get("torch_dtype") or "float32"
    try:
        return DType(str(name).removeprefix("torch."))
    except ValueError:
        known = ", ".join(DType)
        raise config.error(f"dtype '{name}' is not supported; supported are: {known}") from None


def read_activation(config: ConfigReader, key: str, default: str) -> Activation:
    """The feed-forward activation under `key`.

    Raises:
        ModelError: an activation that is not supported.
    """
    name = config.get(key) or default
    if not isinstance(name, str) or name not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise config.error(f"'{key}' {name!r} is not supported; supported are: {known}")
    return _ACTIVATIONS[name]


def read_heads(config: ConfigReader, default_head_dim: int | None = None) -> tuple[int, int, int]:
    """Query heads, key/value heads and head dimension.

    Absent key/value heads mean one per query head; an absent `head_dim` means `default_head_dim`,
    or hidden size divided by heads if that is None.

    Raises:
        ModelError: heads that do not divide as they must.
    """
    heads = config.count("num_attention_heads")
    kv_heads = config.count("num_key_value_heads", heads)
    if heads % kv_heads:
        raise config.error(f"{heads} query heads are no multiple of {kv_heads} key/value heads")
    if config.get("head_dim") is None and default_head_dim is None:
        hidden = config.count("hidden_size")
        if hidden % heads:
            raise config.error(f"hidden_size {hidden} is no multiple of {heads} attention heads")
        return heads, kv_heads, hidden // heads
    return heads, kv_heads, config.count("head_dim", default_head_dim)


def refuse_unless(config: ConfigReader, key: str, expected: Any, default: Any) -> None:
    """Refuse a model whose `key` (`default` if absent) differs from the only supported value.

    Raises:
        ModelError: it differs.
    """
    value = config.get(key)
    value = cast(Any, default) if value is None else value
    if value != expected:
        raise config.error(f"'{key}' = {value!r} is not supported; only {expected!r} is")
