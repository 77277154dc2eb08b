"""One cell: a model's shape, what is asked of it, and the machine that it is emulated on."""

from dataclasses import dataclass, replace

from tandem.models.catalogue import plannable_spec
from tandem.planner.question import USUAL_STEP_TOKENS
from tandem.planner.rates import Rates
from tandem.planner.search.step_sizes import STEP_SIZES
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import HardwareSpec
from tandem.spec.hardware_file import load_hardware
from tandem.spec.model import ModelSpec
from tandem.spec.workload import LengthDistribution, Workload, drawn_workload

DTYPE = DType.FLOAT16
"""Which all of the emulated cards compute in at full rate."""
_REQUESTS = 50_000  # so many that how a job begins and ends is of no weight in its plan
_SPREAD = 0.1  # of lengths, as in NEO's synthetic workloads


@dataclass(frozen=True, slots=True)
class Load:
    """Mean lengths of requests.

    Attributes:
        prompt_tokens: 1 makes a workload that only decodes.
    """

    prompt_tokens: int
    generated_tokens: int

    @property
    def decodes_only(self) -> bool:
        """Prompts are of no weight."""
        return self.prompt_tokens == 1

    @property
    def settling_steps(self) -> int:
        """After which it no longer shows that the first requests' prompts came one after the other:
        two outputs. None if prompts are of no weight.
        """
        return 0 if self.decodes_only else 2 * self.generated_tokens

    def life_s(self, rates: Rates) -> float:
        """In which a slowest request is served, by prediction. So long passes before a window:
        while time stands still cohorts join more often than they will, so that fewer requests lie
        on the host, and requests are evenly apart, so that memory is not short yet.
        """
        return rates.ttft_s + self.generated_tokens * rates.worst_tpot_s

    def whole_s(self, life_s: float) -> float:
        """What a window in virtual time lasts at least; where there are prompts, by who ends."""
        return life_s if self.decodes_only else 0.0

    @property
    def longest_prompt(self) -> int:
        """That may be drawn."""
        return int(_around(self.prompt_tokens).high)

    def workload(self, requests: int = _REQUESTS, rate_per_s: float | None = None) -> Workload:
        """Uniform within a tenth of the means, all there at once or coming as a Poisson process."""
        prompt, generate = map(_around, (self.prompt_tokens, self.generated_tokens))
        return drawn_workload(prompt, generate, requests, rate_per_s)

    def __str__(self) -> str:
        if self.decodes_only:
            return f"decode only, {self.generated_tokens} tokens out"
        return f"{self.prompt_tokens} tokens in, {self.generated_tokens} out"


@dataclass(frozen=True, slots=True)
class OnlineCell:
    """What is run.

    Attributes:
        model_name: of the whole model. model: its layers cut to fewer, its vocabulary alike.
        hardware, truth: what the emulator keeps to; plans are made without them.
        max_num_batched_tokens: of a step, cut like the layers: what a step takes of the
            accelerator's memory beside weights and pages does not depend on their number.
        step_sizes: that plans choose from, cut alike.
        cache_bytes: the last-level cache; None asks sysfs.
    """

    model_name: str
    whole: ModelSpec
    model: ModelSpec
    load: Load
    hardware: HardwareSpec
    truth: Perturbation
    max_num_batched_tokens: int
    step_sizes: tuple[int, ...] = ()
    cache_bytes: int | None = None

    def __str__(self) -> str:
        layers = self.model.num_layers
        cut = f" cut to {layers} layers" if layers < self.whole.num_layers else ""
        return f"{self.hardware.name}, {self.model_name}{cut}, {DTYPE}, {self.load}"


def make_cell(
    hardware: str, model_name: str, layers: int, load: Load, truth: Perturbation
) -> OnlineCell:
    """A cell of named things.

    Raises:
        ConfigError: an unknown name, or more layers than the model has.
    """
    whole = plannable_spec(model_name)
    if layers > whole.num_layers:
        raise ConfigError(
            f"{model_name} has {whole.num_layers} layers; lower --layers", param="layers"
        )
    tokens, *sizes = (
        int(size * (layers / whole.num_layers)) for size in (USUAL_STEP_TOKENS, *STEP_SIZES)
    )
    model, machine = cut_model(whole, layers), load_hardware(hardware)
    return OnlineCell(model_name, whole, model, load, machine, truth, tokens, tuple(sizes))


def cut_model(whole: ModelSpec, layers: int) -> ModelSpec:
    """So many of a model's layers, its vocabulary alike."""
    share = layers / whole.num_layers
    return replace(
        whole, num_layers=layers, vocab_size=int(whole.vocab_size * share), eos_token_ids=()
    )


def _around(mean: int) -> LengthDistribution:
    low, high = round(mean * (1 - _SPREAD)), round(mean * (1 + _SPREAD))
    return LengthDistribution("uniform", max(1, low), high)
