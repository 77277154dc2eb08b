"""The commands that the documentation shows."""

import os
import re
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
)


def blocks(page: Path, language: str) -> list[str]:
    """The contents of a page's fenced blocks of one language ("": of none)."""
    text = page.read_text("utf-8")
    # All blocks are matched, so that the end of one is not taken for the beginning of another.
    found = re.findall(r"^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [content for name, content in found if name == language]


def commands(page: Path, first_word: str) -> list[list[str]]:
    """A page's console lines that begin with a word, split as a shell would."""
    lines = "\n".join(blocks(page, "console")).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith(first_word)]


def tandem(*arguments: str) -> list[str]:
    """`tandem` from this clone."""
    return [sys.executable, "-m", "tandem", *arguments]


def environment() -> dict[str, str]:
    """For commands of this clone."""
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
