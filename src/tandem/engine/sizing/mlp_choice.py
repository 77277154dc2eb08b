"""Whether layers that do not fit leave the accelerator whole or only their MLPs do. Pure."""

from math import prod

from tandem.cost.expert_use import ExpertUse
from tandem.cost.placed_sweep import mixture_times, predicted_sweep_s
from tandem.cost.split_mixture import MixtureBytes
from tandem.cost.sweep_time import layer_times
from tandem.engine.sizing.cpu_rules import choose_cpu_rules
from tandem.plan.sweep_layers import CpuRule
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
        self._mixtures = None if spec.experts is None else MixtureBytes.of(spec, precision)
        self._rules: dict[Placement, tuple[CpuRule, ...]] = {}

    @property
    def disk_known(self) -> bool:
        """Whether reads from disk are among what is predicted."""
        return self._hardware.host.disk_bytes_per_s is not None

    def choose(
        self, first: Placement, *others: Placement, least_gain: float = _MIN_GAIN
    ) -> Placement:
        """The best one for a request alone and for as many as may run at once.

        Both count alike: where one placement is better for the one and the other for the other,
        that with the larger ratio of times is chosen; the earlier if there is none to speak of.

        Args:
            least_gain: share of the time that is worth another placement.
        """
        best, best_s2 = first, self.weighed_s2(first)
        for other in others:
            product_s2 = self.weighed_s2(other)
            if product_s2 < best_s2 * (1 - least_gain):
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
                placement,
                self._spec,
                self._precision,
                self._max_tokens,
                self._hardware,
                self.use,
            )
        spec, precision, hardware = self._spec, self._precision, self._hardware
        split = mixture_times(
            placement, spec, precision, tokens, hardware, self.use, self._mixtures
        )
        times = layer_times(spec, precision, tokens, hardware)
        return predicted_sweep_s(placement, self._rules[placement], tokens, times, split)
