"""`tandem bench perplexity`: what weights and KV cache in few bits cost on a text."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from tandem.bench.records import BenchRow
from tandem.bench.text_scorer import TextScorer
from tandem.engine.sizing.quantization_choice import StoredWeights, choose_quantization
from tandem.kernels.open_pool import open_pool
from tandem.models.config import read_model_spec
from tandem.models.load import load_model
from tandem.models.quantized_checkpoint import read_stored_quantization
from tandem.models.resolve import resolve_model
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError, ModelError
from tandem.spec.kv_type import CodeType, KVType, NarrowFloat
from tandem.spec.precision import Precision

SUITE = "perplexity"
WEIGHTS = ("none", "int8", "w8a8", "int4", "int4:32")
KV_TYPES: tuple[KVType, ...] = (DType.FLOAT16, NarrowFloat.FP8, CodeType.INT8, CodeType.INT4)


@dataclass(frozen=True, slots=True)
class Text:
    """Documents of one kind, in token ids.

    Attributes:
        name: of the file.
    """

    name: str
    documents: tuple[list[int], ...]

    @property
    def num_tokens(self) -> int:
        """That are predicted: all but each document's first."""
        return sum(len(ids) - 1 for ids in self.documents)


def run_perplexity(
    model: str,
    files: Sequence[Path],
    report: Callable[[str], None],
    *,
    weights: Sequence[str] = WEIGHTS,
    kv_types: Sequence[KVType] = KV_TYPES,
) -> list[BenchRow]:
    """Of each text with all kinds of weights and KV; the first of either is the bound.

    Raises:
        ConfigError: a file that holds no texts, or weights that cannot be quantized so.
        ModelError: no such model, or one without a tokenizer.json.
    """
    directory = resolve_model(model)
    spec = read_model_spec(directory)
    if read_stored_quantization(directory) is not None:
        raise ModelError(f"{directory} is quantized already; use the model that it was made from")
    texts = [read_text(file, directory, spec.max_positions) for file in files]
    pool = open_pool()
    rows: list[BenchRow] = []
    bounds: dict[str, float] = {}
    for kind in weights:
        plain = Precision(spec.dtype, DType.FLOAT32, DType.FLOAT32)
        chosen, _ = choose_quantization(
            kind, spec, plain, StoredWeights(), compiled=pool is not None
        )
        loaded = load_model(directory, chosen, pool=pool)
        for kv in kv_types:
            variant = f"{_weights_text(chosen)}, {kv} KV"
            report(variant)
            scorer = TextScorer(loaded, kv, spec.max_positions)
            for text in texts:
                value = perplexity(scorer, text)
                case = f"{text.name}: {text.num_tokens:,} tokens"
                bound = bounds.setdefault(text.name, value)
                rows.append(BenchRow(case, variant, "perplexity", value, "", bound))
    return sorted(rows, key=lambda row: row.case)


def _weights_text(precision: Precision) -> str:
    kinds = sorted({str(format) for format in precision.quantized.values()})
    rounded = " and int8 activations" if precision.int8_activations else ""
    return " and ".join(kinds or [str(precision.weights)]) + " weights" + rounded


def perplexity(scorer: TextScorer, text: Text) -> float:
    """The mean token's inverse probability, as a geometric mean."""
    return math.exp(sum(scorer.surprise(ids) for ids in text.documents) / text.num_tokens)


def read_text(file: Path, directory: Path, max_tokens: int) -> Text:
    """JSON lines with a `text`, special tokens written out; cut at `max_tokens`.

    Raises:
        ConfigError: not such a file, or nothing in it that could be predicted.
        ModelError: the model has no tokenizer.json.
    """
    path = directory / "tokenizer.json"
    if not path.is_file():
        raise ModelError(f"{directory} holds no tokenizer.json; use a model that has one")
    tokenizer = Tokenizer.from_file(str(path))
    encoded = (tokenizer.encode(text, add_special_tokens=False).ids for text in _lines(file))
    documents = tuple(ids[:max_tokens] for ids in encoded if len(ids) > 1)
    if not documents:
        raise ConfigError(f"{file} holds no text of two tokens or more", param="text")
    return Text(file.stem, documents)


def _lines(file: Path) -> Iterator[str]:
    try:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            entry = json.loads(line)
            if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
                raise ConfigError(f"{file}:{number} has no 'text'", param="text")
            yield entry["text"]
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {file} ({error})", param="text") from error
