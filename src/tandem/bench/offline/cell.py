"""One cell: a model's shape, a job for it, and the machine that it is emulated on."""

import math
import random
from dataclasses import dataclass, replace

from tandem.bench.online.cell import DTYPE, Load
from tandem.models.catalogue import plannable_spec
from tandem.runtime.paced.perturbed_rates import Perturbation
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import HardwareSpec
from tandem.spec.hardware_file import pair_hardware
from tandem.spec.model import ModelSpec
from tandem.spec.workload import Workload

_BATCHED_TOKENS = 2048  # of a step, uncut


@dataclass(frozen=True, slots=True)
class OfflineCell:
    """What is run.

    Attributes:
        whole: the uncut model. model: its layers cut to fewer, its vocabulary alike.
        pair: the uncut machine, as described.
        hardware: both memories cut alike; its host is as it truly is. truth: how the accelerator
            and the link deviate from it.
        max_num_batched_tokens: of a step, cut alike, but no less than a prompt.
    """

    model_name: str
    whole: ModelSpec
    model: ModelSpec
    load: Load
    requests: int
    pair: HardwareSpec
    hardware: HardwareSpec
    truth: Perturbation
    max_num_batched_tokens: int

    @property
    def workload(self) -> Workload:
        """Of the whole job."""
        return self.load.workload(self.requests)

    @property
    def described(self) -> HardwareSpec:
        """The cut machine with its host as described, not as it truly is."""
        told = replace(self.pair.host, memory_bytes=self.hardware.host.memory_bytes)
        return replace(self.hardware, host=told)

    def __str__(self) -> str:
        return (
            f"{self.hardware.name}, {self.model_name} cut to {self.model.num_layers} of "
            f"{self.whole.num_layers} layers, {DTYPE}, {self.requests} requests, {self.load}"
        )


@dataclass(frozen=True, slots=True)
class CellName:
    """A cell as the papers have it, uncut.

    Attributes:
        layers: to how many it is cut unless another number is asked for.
    """

    accelerator: str
    host: str
    model: str
    load: Load
    requests: int
    layers: int = 8

    def __str__(self) -> str:
        where = f"{self.model} on {self.accelerator} in {self.host}"
        return f"{where}, {self.requests} requests, {self.load}"


def make_cell(named: CellName, layers: int, truth: Perturbation) -> OfflineCell:
    """A cell cut to so many layers.

    Raises:
        ConfigError: an unknown name, or more layers than the model has.
    """
    whole = plannable_spec(named.model)
    if layers > whole.num_layers:
        raise ConfigError(
            f"{named.model} has {whole.num_layers} layers; lower --layers", param="layers"
        )
    share = layers / whole.num_layers
    model = replace(
        whole, num_layers=layers, vocab_size=int(whole.vocab_size * share), eos_token_ids=()
    )
    tokens = max(math.ceil(_BATCHED_TOKENS * share), named.load.longest_prompt)
    pair = pair_hardware(named.accelerator, named.host)
    hardware = _cut(pair, share, truth)
    return OfflineCell(
        named.model, whole, model, named.load, named.requests, pair, hardware, truth, tokens
    )


def _cut(hardware: HardwareSpec, share: float, truth: Perturbation) -> HardwareSpec:
    """Memory for a share of the layers; the host's rates as they truly are."""
    draw = random.Random(f"{truth.seed} host")
    host, card = hardware.host, hardware.accelerator

    def true(rate: float) -> float:
        return rate * (1 + draw.uniform(-truth.terms, truth.terms))

    shared = host.shared_memory_bandwidth_bytes_per_s
    return replace(
        hardware,
        accelerator=replace(card, memory_bytes=int(card.memory_bytes * share)),
        host=replace(
            host,
            memory_bytes=int(host.memory_bytes * share),
            memory_bandwidth_bytes_per_s=true(host.memory_bandwidth_bytes_per_s),
            flops_per_s=true(host.flops_per_s),
            shared_memory_bandwidth_bytes_per_s=None if shared is None else true(shared),
        ),
    )
