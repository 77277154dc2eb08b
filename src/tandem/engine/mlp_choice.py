"""Whether layers that do not fit leave the accelerator whole or only their MLPs do. Pure."""

from math import prod

from tandem.cost.expert_use import ExpertUse
from tandem.cost.placed_sweep import predicted_sweep_s
from tandem.cost.sweep_time import LayerTimes, SplitTimes, layer_times, split_times
from tandem.engine.cpu_rules import choose_cpu_rules
from tandem.plan.sweep_layers import CpuRule
from tandem.plan.weights import MLPS_APART, WeightPlacement, homes_by_layer, resident_experts
from tandem.spec.hardware import HardwareSpec
from tandem.spec.model import ModelSpec
from tandem.spec.precision import Precision

PROMPT_TOKENS, OUTPUT_TOKENS = 512, 256
"""Of the requests by which placements are compared."""
_MIN_GAIN = 0.02
"""Less than this share of the time is not worth another placement."""
Placement = tuple[WeightPlacement, ...]


class PlacementTimes:
    """Predicted times of placements on some hardware.

    Args:
        rows: most requests at once. max_tokens: most tokens of a step.
        use: of experts; None: uniform.
    """

    def __init__(
        self,
        spec: ModelSpec,
        precision: Precision,
        hardware: HardwareSpec,
        rows: int,
        max_tokens: int,
        use: ExpertUse | None = None,
    ) -> None:
        self._spec, self._precision, self._hardware = spec, precision, hardware
        self._rows, self._max_tokens = rows, max_tokens
        self.use = use or ExpertUse.uniform(spec)
        self._rules: dict[Placement, tuple[CpuRule, ...]] = {}

    @property
    def disk_known(self) -> bool:
        """Whether reads from disk are among what is predicted."""
        return self._hardware.host.disk_bytes_per_s is not None

    def choose(self, first: Placement, *others: Placement) -> Placement:
        """The best one for a request alone and for as many as may run at once.

        Both count alike: where one placement is better for the one and the other for the other,
        that with the larger ratio of times is chosen; the earlier if there is none to speak of.
        """
        best, best_s2 = first, self.weighed_s2(first)
        for other in others:
            product_s2 = self.weighed_s2(other)
            if product_s2 < best_s2 * (1 - _MIN_GAIN):
                best, best_s2 = other, product_s2
        return best

    def weighed_s2(self, placement: Placement) -> float:
        """Product of the times of both: the less, the better."""
        return prod(self.requests_s(placement, rows) for rows in {1, self._rows})

    def requests_s(self, placement: Placement, rows: int) -> float:
        """Of `rows` requests at once: their prompts in steps as large as may be, then a token each
        in every step.
        """
        prompts = rows * PROMPT_TOKENS
        step = min(prompts, self._max_tokens)
        steps_s = prompts / step * self.sweep_s(placement, step)
        return steps_s + OUTPUT_TOKENS * self.sweep_s(placement, rows)

    def sweep_s(self, placement: Placement, tokens: int) -> float:
        """Of a step of `tokens` tokens."""
        if placement not in self._rules:
            self._rules[placement] = choose_cpu_rules(
                placement, self._spec, self._precision, self._max_tokens, self._hardware
            )
        rules, split = self._rules[placement], self._split_times(placement, tokens)
        return predicted_sweep_s(placement, rules, tokens, self._times(tokens), split)

    def _split_times(self, placement: Placement, tokens: int) -> dict[int, SplitTimes]:
        resident, homes = resident_experts(placement), homes_by_layer(placement)
        mixtures = [
            layer
            for layer, home in homes.items()
            if home in MLPS_APART and self._spec.routed_experts(layer) is not None
        ]
        return {
            layer: split_times(
                self._spec,
                self._precision,
                tokens,
                self._hardware,
                layer,
                resident.get(layer, ()),
                self.use,
            )
            for layer in mixtures
        }

    def _times(self, tokens: int) -> LayerTimes:
        return layer_times(self._spec, self._precision, tokens, self._hardware)
