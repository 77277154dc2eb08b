"""`tandem bench batch`: whole jobs on the host alone, this engine beside transformers."""

import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from transformers import AutoModelForCausalLM, AutoTokenizer

from tandem.bench.batch.tandem_job import TandemJob
from tandem.bench.batch.transformers_job import TransformersJob
from tandem.bench.batch.work import Answered, Asked, BatchWork
from tandem.bench.host_bounds import HostLimits, prefill_bound
from tandem.bench.host_model import LLAMA_30M, LLAMA_246M, SEED, LlamaShape
from tandem.bench.limits import gemm_probe, read_probe
from tandem.bench.records import BenchRow, row_of_samples, rows_of_ratio
from tandem.bench.transformers_generation import with_dummy_weights
from tandem.models.config import read_model_spec
from tandem.models.resolve import resolve_model
from tandem.probes.interleave import interleave, paired_ratio
from tandem.spec.config import EngineConfig
from tandem.spec.dtype import DType
from tandem.spec.model import ModelSpec

SUITE = "batch"
_TANDEM, _READ, _GEMM = "tandem", "read", "gemm"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
_DTYPE = DType.FLOAT32
_CUT_OFF = "\ufffd"


class _Job(Protocol):
    def run(self, asked: tuple[Asked, ...]) -> Answered: ...


@dataclass(frozen=True, slots=True)
class BatchBench:
    """What to measure.

    Attributes:
        shape: of random weights; None: the demo model.
        peer_rows: batches that transformers is tried with; the best one counts.
        max_num_seqs: of this engine.
    """

    shape: LlamaShape | None
    work: BatchWork
    rounds: int
    peer_rows: tuple[int, ...] = (16, 32, 64)
    max_num_seqs: int = 64

    @property
    def name(self) -> str:
        """Of the model."""
        return "demo model" if self.shape is None else self.shape.name


_DEMO_VOCABULARY = 4096
FULL = (
    BatchBench(None, BatchWork(256, (16, 256), (32, 128), _DEMO_VOCABULARY), 3),
    BatchBench(LLAMA_246M, BatchWork(64, (16, 128), (16, 64), _DEMO_VOCABULARY), 3, (16, 32)),
)
QUICK = (BatchBench(LLAMA_30M, BatchWork(24, (8, 32), (4, 16), _DEMO_VOCABULARY), 1, (8,), 8),)


def run_batch(
    benches: tuple[BatchBench, ...], report: Callable[[str], None]
) -> tuple[BenchRow, ...]:
    """All jobs of all models.

    Args:
        report: told in words what is being done.
    """
    rows: list[BenchRow] = []
    for bench in benches:
        with tempfile.TemporaryDirectory(prefix="tandem-bench-") as name:
            report(f"loading the {bench.name}, {_DTYPE}")
            rows += _run(bench, Path(name), report)
    return tuple(rows)


def _run(bench: BatchBench, folder: Path, report: Callable[[str], None]) -> list[BenchRow]:
    demo = resolve_model("demo")
    directory = demo if bench.shape is None else _written(bench.shape, demo, folder)
    config = EngineConfig(
        str(directory),
        accelerator="none",
        cpu_memory="4GiB",
        dtype=str(_DTYPE),
        load_format="auto" if bench.shape is None else "dummy",
        seed=SEED,
        max_model_len=1024,
        max_num_seqs=bench.max_num_seqs,
    )
    model = _peer(directory, random=bench.shape is not None)
    tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    peers = {
        f"transformers, batches of {rows}": TransformersJob(model, tokenizer, rows)
        for rows in bench.peer_rows
    }
    with closing(TandemJob(config, folder)) as tandem:
        report(f"{bench.name}, {bench.work}: {bench.rounds} rounds")
        return _Measured(bench, read_model_spec(directory), {_TANDEM: tandem, **peers}).rows()


def _written(shape: LlamaShape, demo: Path, folder: Path) -> Path:
    """A folder with the shape, and the demo model's tokenizer."""
    directory = folder / "model"
    directory.mkdir()
    shape.write(directory, _DTYPE)
    for name in _TOKENIZER_FILES:
        shutil.copy(demo / name, directory / name)
    return directory


def _peer(directory: Path, *, random: bool) -> Any:
    if random:
        model = with_dummy_weights(directory)
    else:
        model = AutoModelForCausalLM.from_pretrained(
            directory, local_files_only=True, dtype=_DTYPE.value, attn_implementation="sdpa"
        )
    model.generation_config.eos_token_id = None
    return model.eval()


class _Measured:
    """Jobs in turns, the probes between them; every round has requests of its own."""

    def __init__(self, bench: BatchBench, spec: ModelSpec, jobs: Mapping[str, _Job]) -> None:
        self._bench, self._spec, self._jobs = bench, spec, jobs
        self._ran: dict[str, list[Answered]] = {name: [] for name in jobs}

    def rows(self) -> list[BenchRow]:
        measures: dict[str, Callable[[], float]] = {
            name: lambda name=name: self._measure(name) for name in self._jobs
        }
        samples = interleave(
            measures | {_READ: read_probe(), _GEMM: gemm_probe()}, self._bench.rounds
        )
        limits = HostLimits(statistics.median(samples[_READ]), statistics.median(samples[_GEMM]))
        case = f"{self._bench.name}, {_DTYPE}, {self._bench.work}"
        bound = self._bound(limits)
        peers = [name for name in self._jobs if name != _TANDEM]
        best = max(peers, key=lambda name: statistics.median(samples[name]))
        ratio = paired_ratio(samples[_TANDEM], samples[best])
        over = f"job throughput over {best}"
        return [
            *(
                row_of_samples(case, name, "job throughput", samples[name], "tokens/s", bound)
                for name in self._jobs
            ),
            *rows_of_ratio(case, _TANDEM, over, ratio),
            BenchRow(
                case, _TANDEM, "answers equal to transformers", self._equal(best), "share", 1.0
            ),
            row_of_samples(
                case, "host", "fp32 GEMM", [rate / 1e9 for rate in samples[_GEMM]], "GFLOP/s"
            ),
        ]

    def _measure(self, name: str) -> float:
        ran = self._ran[name]
        ran.append(self._jobs[name].run(self._bench.work.drawn(len(ran))))
        return ran[-1].tokens_per_s

    def _bound(self, limits: HostLimits) -> float:
        """Output tokens/s if all tokens were computed at once, at the rate of products."""
        asked = self._bench.work.drawn(0)
        wanted = sum(each.new_tokens for each in asked)
        prompts = sum(len(each.prompt) for each in asked)
        computed = (wanted + prompts) // len(asked)
        return wanted / (wanted + prompts) * prefill_bound(self._spec, _DTYPE, limits, computed)

    def _equal(self, peer: str) -> float:
        """A character that is cut off at the end is none here, and a mark there."""
        pairs = [
            (ours, theirs.rstrip(_CUT_OFF))
            for a, b in zip(self._ran[_TANDEM], self._ran[peer], strict=True)
            for ours, theirs in zip(a.texts, b.texts, strict=True)
        ]
        return sum(ours == theirs for ours, theirs in pairs) / len(pairs)
