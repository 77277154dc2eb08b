"""`tandem bench placement`: one request on an emulated accelerator that the weights do not fit.

Each way of placing what does not fit is decoded with; layers on the CPU are computed for real, the
accelerator's and the link's times are emulated, so all variants carry the word `paced`. A step at
batch 1 is a chain: its bound is every weight byte over the rate of what it comes through, one after
the other (`chain.py`), the host's rate probed in turns with the steps, while nothing is in flight.
Of experts those count that a token is expected to go to.
"""

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tandem.bench.chain import ChainRates, chain_s
from tandem.bench.limits import read_probe
from tandem.bench.own_core import own_core
from tandem.bench.records import BenchRow, row_of_samples
from tandem.cost.rates import accelerator_rates
from tandem.engine.building.paced import PacedEngine, build_paced_core
from tandem.engine.building.paced_machine import PacedOptions
from tandem.probes.interleave import interleave
from tandem.spec.config import EngineConfig, HostLayers
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError
from tandem.spec.hardware import HardwareSpec
from tandem.spec.hardware_file import load_hardware
from tandem.spec.model import ModelSpec
from tandem.spec.parameters import layer_matrix_parameters
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

SUITE = "placement"
WAYS: tuple[HostLayers, ...] = ("stream", "cpu", "mlp", "auto")
_READ = "read"
_ALLOWED_LATENESS = 0.02  # of a step; beyond it, its time is the emulator's own
_PROMPT_TOKENS = 32
_MAX_MODEL_LEN = 2048
_DTYPE = DType.BFLOAT16


@dataclass(frozen=True, slots=True)
class PlacementBench:
    """What to run.

    Attributes:
        model: `layers` of its layers are run, the output head cut alike. name: of its shape.
        hardware: name or path of a description.
        ways: of placing what does not fit.
        memory_shares: of the model's weights that the accelerator has room for, a case each.
        step_tokens: of one sample.
    """

    model: ModelSpec
    name: str
    hardware: str = "a10g-scaled"
    layers: int = 8
    ways: tuple[HostLayers, ...] = WAYS
    memory_shares: tuple[float, ...] = (0.4, 0.7)
    step_tokens: int = 8
    rounds: int = 7


def run_placement(bench: PlacementBench, report: Callable[[str], None]) -> tuple[BenchRow, ...]:
    """Every way of every case.

    Args:
        report: told in words what is being done.

    Raises:
        ConfigError: the machine has a single core, nothing of the model would fit, or it has fewer
            layers.
    """
    if bench.layers > bench.model.num_layers:
        raise ConfigError(f"{bench.name} has {bench.model.num_layers} layers, not {bench.layers}")
    hardware = load_hardware(bench.hardware)
    whole, cut = bench.model, bench.layers / bench.model.num_layers
    model = replace(whole, num_layers=bench.layers, vocab_size=int(whole.vocab_size * cut))
    rows: list[BenchRow] = []
    with own_core() as cores:
        for share in bench.memory_shares:
            for way in bench.ways:
                report(f"{way}: {share:.0%} of the weights fit")
                rows += _Cell(bench, hardware, model, share, way, cores).rows()
    return tuple(rows)


class _Cell:
    """One way of placing what does not fit."""

    def __init__(
        self,
        bench: PlacementBench,
        hardware: HardwareSpec,
        model: ModelSpec,
        share: float,
        way: HostLayers,
        cores: tuple[int, ...],
    ) -> None:
        self._bench, self._hardware, self._model = bench, hardware, model
        self._way: HostLayers = way
        self._cores, self._numbers = cores, itertools.count()
        self._case = (
            f"{hardware.name}, {model.num_layers} layers of {bench.name}'s shape, {_DTYPE.value}, "
            f"batch 1, room for {share:.0%} of the weights"
        )
        self._engine = self._build(int(share * _weight_bytes(model)))

    def _build(self, room_bytes: int) -> PacedEngine:
        config = EngineConfig(
            model=self._hardware.name,
            dtype=_DTYPE.value,
            gpu_memory=str(room_bytes),
            strategy="gpu-only",
            host_layers=self._way,
            max_num_seqs=1,
            max_num_batched_tokens=_PROMPT_TOKENS,
            max_model_len=_MAX_MODEL_LEN,
            enable_prefix_caching=False,
        )
        options = PacedOptions(cores=self._cores)
        return build_paced_core(config, self._model, self._hardware, options)

    def rows(self) -> list[BenchRow]:
        """Measure, and hold it against the chain."""
        try:
            probe = read_probe(self._cores)
            samples = interleave({self._way: self._step_s, _READ: probe}, self._bench.rounds)
            self._step_s(window=True)
            late_s = self._engine.executor.report().lateness_p95_s
        finally:
            self._engine.core.close()
        read = statistics.median(samples[_READ])
        chain_s = self._chain_s(read)
        steps_s, variant = samples[self._way], f"paced {self._way}"
        allowed_s = _ALLOWED_LATENESS * statistics.median(steps_s)
        return [
            row_of_samples(
                self._case,
                variant,
                "decode throughput",
                [1 / step_s for step_s in steps_s],
                "tokens/s",
                1 / chain_s,
            ),
            BenchRow(self._case, variant, "emulator's lateness p95", late_s, "s", allowed_s),
            row_of_samples(
                self._case, variant, "host reading", [s / 1e9 for s in samples[_READ]], "GB/s"
            ),
        ]

    def _step_s(self, *, window: bool = False) -> float:
        """Of a request of its own, from the end of its second token to the end of its last, for
        each token; nothing is in flight then.

        Args:
            window: have the emulator tell whether it kept its times meanwhile.
        """
        core, tokens = self._engine.core, self._bench.step_tokens
        params = SamplingParams(max_tokens=2 + tokens, ignore_eos=True)
        prompt = tuple(range(1, _PROMPT_TOKENS + 1))
        core.add_request(EngineRequest(str(next(self._numbers)), prompt, params))
        seen = self._emit(2)
        if window:
            self._engine.executor.begin_window()
        begin = time.perf_counter()
        left = 2 + tokens - seen  # a step's turn may give out more than one
        self._emit(left)
        step_s = (time.perf_counter() - begin) / left
        while core.has_work():
            core.step()
        return step_s

    def _emit(self, least: int) -> int:
        """Step until so many tokens have been given out; how many have."""
        seen = 0
        while seen < least:
            seen += sum(len(output.token_ids) for output in self._engine.core.step())
        return seen

    def _chain_s(self, host_bytes_per_s: float) -> float:
        """A token's weights over the rates that they come at, one after the other."""
        rates = ChainRates(
            accelerator_rates(self._hardware, _DTYPE).bytes_per_s,
            self._hardware.link.h2d_bytes_per_s,
            host_bytes_per_s,
        )
        return chain_s(self._engine.memory.plan, self._model, _DTYPE, rates)


def _weight_bytes(model: ModelSpec) -> int:
    layers = model.num_layers * layer_matrix_parameters(model) * _DTYPE.size_bytes
    return layers + 2 * _head_bytes(model)  # and the embeddings


def _head_bytes(model: ModelSpec) -> int:
    return model.vocab_size * model.hidden_size * _DTYPE.size_bytes
