"""Shapes of the OPT and LLaMA models that the papers measured."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """One decoder-only transformer with as many heads for keys as for queries.

    Attributes:
        matrices: of hidden by intermediate size in the feed-forward part: 2, or 3 if gated.
    """

    layers: int
    hidden_size: int
    intermediate_size: int
    heads: int
    matrices: int = 2

    @property
    def layer_weights(self) -> int:
        """Elements of a layer's matrices."""
        return 4 * self.hidden_size**2 + self.matrices * self.hidden_size * self.intermediate_size


# config.json of facebook/opt-* and huggyllama/llama-*.
SHAPES = {
    "OPT-6.7B": Shape(32, 4096, 16384, 32),
    "OPT-13B": Shape(40, 5120, 20480, 40),
    "OPT-30B": Shape(48, 7168, 28672, 56),
    "OPT-66B": Shape(64, 9216, 36864, 72),
    "LLaMA-30B": Shape(60, 6656, 17920, 52, 3),
    "LLaMA-65B": Shape(80, 8192, 22016, 64, 3),
}
