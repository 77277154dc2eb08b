"""How likely tokens are to go to each expert of each layer."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tandem.spec.model import ModelSpec


@dataclass(frozen=True, slots=True)
class ExpertUse:
    """Measured, or taken to be uniform; tokens choose independently of each other.

    Attributes:
        shares: by layer and expert, of the tokens that go to it; empty for layers without experts.
            Those of a layer add up to the number of experts of a token.
    """

    shares: tuple[tuple[float, ...], ...]

    @staticmethod
    def uniform(spec: ModelSpec) -> "ExpertUse":
        """Where nothing has been measured."""
        return ExpertUse.of_counts([()] * spec.num_layers, spec)

    @staticmethod
    def of_counts(counts: Sequence[Sequence[int]], spec: ModelSpec) -> "ExpertUse":
        """Of how often tokens went to each expert, by layer.

        Layers that no token went through are taken to be uniform. No expert takes more than all
        tokens: what counts beyond that say is left out.
        """
        shares: list[tuple[float, ...]] = []
        for layer, counted in enumerate(counts):
            experts = spec.routed_experts(layer)
            if experts is None:
                shares.append(())
                continue
            total = sum(counted)
            uniform = experts.per_token / experts.count
            shares.append(
                tuple(min(1.0, experts.per_token * count / total) for count in counted)
                if total
                else (uniform,) * experts.count
            )
        return ExpertUse(tuple(shares))

    def of(self, layer: int, experts: Collection[int]) -> float:
        """Part of a layer's work that falls to some of its experts."""
        shares = self.shares[layer]
        return sum(shares[expert] for expert in experts) / sum(shares)

    def touched(self, layer: int, experts: Collection[int], tokens: int) -> float:
        """How many of some experts are expected to get any of `tokens` tokens."""
        shares = self.shares[layer]
        return sum(1 - (1 - shares[expert]) ** tokens for expert in experts)
