"""Write the text that the demo model never saw, for `tandem bench perplexity`.

    python scripts/demo_model/held_out.py --corpus build/demo-model/corpus.jsonl \
        --out build/demo-model

Two files of JSON lines with a `text`, as in the model card's results: `documentation.jsonl` and
`chats.jsonl`.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable
from pathlib import Path

from render import BOS, EOS, chat_documents, plain
from tokenizer import load_units


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    units = [u for u in load_units(args.corpus) if u.split == "validation"]
    write(args.out / "documentation.jsonl", (f"{BOS}{plain(u, True)}{EOS}" for u in units))
    write(args.out / "chats.jsonl", chat_documents(units, random.Random(2), 1.0))


def write(path: Path, texts: Iterable[str]) -> None:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")


if __name__ == "__main__":
    main()
