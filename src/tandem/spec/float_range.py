"""Which models compute numbers beyond float16's range."""

from tandem.spec.model import ModelSpec

_WIDE = ("gemma2", "gemma3", "gemma3_multimodal")
"""Architectures whose activations exceed it (vLLM refuses float16 for them, too)."""


def needs_range(spec: ModelSpec) -> bool:
    """Whether float16 is no type for the model."""
    return spec.architecture in _WIDE
