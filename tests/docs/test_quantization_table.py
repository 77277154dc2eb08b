"""The perplexity table in the documentation is the committed record's."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_is_the_record() -> None:
    path = ROOT / "benchmarks" / "results" / "2026-11-23-epyc2-perplexity.json"
    figures: dict[str, dict[tuple[str, str], str]] = {}
    for row in json.loads(path.read_text())["rows"]:
        weights, kv = row["variant"].removesuffix(" KV").rsplit(", ", 1)
        text = row["case"].partition(":")[0]
        name = weights.replace(" weights", "")
        figures.setdefault(name, {})[text, kv] = f"{row['value']:.2f}"
    kinds = ("float16", "fp8", "int8", "int4")
    columns = [(text, kv) for text in ("documentation", "chats") for kv in kinds]
    page = (ROOT / "docs" / "quantization.md").read_text()
    assert len(figures) == 5
    for name, found in figures.items():
        assert f"| {name} | {' | '.join(found[column] for column in columns)} |" in page
