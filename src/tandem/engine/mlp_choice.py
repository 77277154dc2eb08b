"""Whether layers that do not fit leave the accelerator whole or only their MLPs do. Pure."""

from tandem.cost.sweep_time import LayerTimes, layer_times
from tandem.engine.cpu_rules import choose_cpu_rules, predicted_sweep_s
from tandem.plan.weights import WeightPlacement
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
    """

    def __init__(
        self,
        spec: ModelSpec,
        precision: Precision,
        hardware: HardwareSpec,
        rows: int,
        max_tokens: int,
    ) -> None:
        self._spec, self._precision, self._hardware = spec, precision, hardware
        self._rows, self._max_tokens = rows, max_tokens

    def choose(self, whole: Placement, mlps: Placement) -> Placement:
        """The better one for a request alone and for as many as may run at once.

        Both count alike: where one placement is better for the one and the other for the other,
        that with the larger ratio of times is chosen; `whole` if there is none to speak of.
        """
        ratio = 1.0
        for rows in {1, self._rows}:
            ratio *= self.requests_s(mlps, rows) / self.requests_s(whole, rows)
        return mlps if ratio < 1 - _MIN_GAIN else whole

    def requests_s(self, placement: Placement, rows: int) -> float:
        """Of `rows` requests at once: their prompts in steps as large as may be, then a token each
        in every step.
        """
        prompts = rows * PROMPT_TOKENS
        step = min(prompts, self._max_tokens)
        rules = choose_cpu_rules(
            placement, self._spec, self._precision, self._max_tokens, self._hardware
        )

        def sweep_s(tokens: int) -> float:
            return predicted_sweep_s(placement, rules, tokens, self._times(tokens))

        return prompts / step * sweep_s(step) + OUTPUT_TOKENS * sweep_s(rows)

    def _times(self, tokens: int) -> LayerTimes:
        return layer_times(self._spec, self._precision, tokens, self._hardware)
