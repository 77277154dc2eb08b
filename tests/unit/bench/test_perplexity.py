"""The perplexity benchmark: numbers are transformers', and files it cannot use are named."""

import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.parity.published_checkpoint import write
from tests.parity.published_formats import awq
from tests.parity.quantized_weights import CASE
from tests.parity.tiny_models import VOCAB_SIZE, build

from tandem.bench.perplexity import read_text, run_perplexity
from tandem.bench.text_scorer import TextScorer
from tandem.kernels.open_pool import open_pool
from tandem.models.load import load_model
from tandem.models.resolve import resolve_model
from tandem.spec.dtype import DType
from tandem.spec.errors import ConfigError, ModelError
from tandem.spec.kv_type import CodeType

DEMO = resolve_model("demo")


@pytest.mark.parametrize("compiled", [True, False])
def test_a_document_surprises_as_it_does_transformers(compiled: bool, tmp_path: Path) -> None:
    reference = build(CASE, tmp_path)
    model = load_model(tmp_path, pool=open_pool() if compiled else None)
    exact, rough = (TextScorer(model, kv, 200) for kv in (DType.FLOAT32, CodeType.INT4))
    for count in (150, 2, 67):  # the cache is used again
        ids = [(11 * i * i + i) % VOCAB_SIZE for i in range(count)]
        with torch.no_grad():
            logits = reference(torch.tensor([ids])).logits[0, :-1]
        expected = float(F.cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum"))
        assert exact.surprise(ids) == pytest.approx(expected, rel=1e-5)
        assert rough.surprise(ids) != pytest.approx(expected, rel=1e-5)


def lines(path: Path, *entries: object) -> Path:
    path.write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    return path


def test_every_kind_of_weights_and_cache_has_a_row(tmp_path: Path) -> None:
    texts = ("<|bos|>Return a list of the names.<|eos|>", "<|bos|>Open a file.<|eos|>", "<|bos|>")
    file = lines(tmp_path / "some.jsonl", *({"text": text} for text in texts))
    said: list[str] = []
    rows = run_perplexity(
        "demo",
        [file],
        said.append,
        weights=("none", "int4:32"),
        kv_types=(DType.FLOAT16, CodeType.INT8),
    )
    documents = read_text(file, DEMO, 100).documents
    assert len(documents) == 2  # nothing in the third can be predicted
    assert {row.case for row in rows} == {f"some: {sum(map(len, documents)) - 2} tokens"}
    assert [row.variant for row in rows] == said == [
        "bfloat16 weights, float16 KV",
        "bfloat16 weights, int8 KV",
        "int4:32 weights, float16 KV",
        "int4:32 weights, int8 KV",
    ]  # fmt: skip
    scorer = TextScorer(load_model(DEMO), DType.FLOAT16, 100)
    mean = sum(map(scorer.surprise, documents)) / sum(len(ids) - 1 for ids in documents)
    assert rows[0].value == rows[0].bound == pytest.approx(math.exp(mean), rel=1e-2)
    assert len({row.value for row in rows}) == 4
    assert len({row.bound for row in rows}) == 1


def test_documents_are_cut_at_the_models_context(tmp_path: Path) -> None:
    file = lines(tmp_path / "long.jsonl", {"text": "one two three four five six"})
    assert [len(ids) for ids in read_text(file, DEMO, 3).documents] == [3]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("", "no text of two tokens"),
        ('{"text": "<|bos|>"}\n', "no text of two tokens"),
        ('{"text": 3}\n', "bad.jsonl:1 has no 'text'"),
        ('{"text": "a b"}\n[]\n', "bad.jsonl:2 has no 'text'"),
        ("{\n", "cannot read"),
    ],
)
def test_files_without_texts_are_refused(content: str, named: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(content)
    with pytest.raises(ConfigError, match=named):
        read_text(file, DEMO, 100)


def test_missing_files_and_quantized_models_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read_text(tmp_path / "none.jsonl", DEMO, 100)
    write(tmp_path, awq(64))
    with pytest.raises(ModelError, match="quantized already"):
        run_perplexity(str(tmp_path), [], print)
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        read_text(tmp_path / "none.jsonl", tmp_path, 100)
