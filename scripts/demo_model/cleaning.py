"""Turn docstrings and comments into plain English paragraphs.

The sources are wrapped at 70-odd columns, mixed with doctests, tables and code. The functions
here drop what is not prose, undo the wrapping and normalise quotes, so that a small language
model sees sentences and not typography.
"""

from __future__ import annotations

import inspect
import re

MIN_PROSE_SHARE = 0.68
WRAP_WIDTH = 46


def clean(raw: str, min_words: int = 3, signatures: bool = False) -> list[str]:
    """Return the English paragraphs of `raw` (and its signatures), unwrapped, in order."""
    text = _drop_doctests(inspect.cleandoc(_plain_characters(raw)))
    paragraphs = []
    for block in re.split(r"\n[ \t]*\n", text):
        paragraph = _simplify_markup(_unwrap(block))
        if is_prose(paragraph, min_words) or (signatures and is_signature(paragraph)):
            paragraphs.append(paragraph)
    return paragraphs


def is_prose(paragraph: str, min_words: int) -> bool:
    """Say whether most words of `paragraph` are ordinary lower-case English words."""
    words = paragraph.split()
    if len(words) < min_words or not paragraph.isascii():
        return False
    noise = r"[=<>]{2}|[|{}\\]|__file__|^\W*$|\w\(\)\s*=|^\s*@|copyright|licensed to"
    if re.search(noise, paragraph, re.I):
        return False
    ordinary = re.compile(r"[(\"'`]*[A-Za-z][a-z'-]*[.,;:)!?\"'`]*")
    plain = sum(1 for word in words if ordinary.fullmatch(word))
    return plain / len(words) >= MIN_PROSE_SHARE


def is_signature(paragraph: str) -> bool:
    """Say whether `paragraph` is one call signature, such as `object.__del__(self)`."""
    return bool(re.fullmatch(r"[A-Za-z_][\w.]*\([\w ,*=.\[\]]*\)", paragraph))


def first_sentence(paragraph: str) -> str:
    """Return the first sentence of `paragraph` (all of it when no sentence ends)."""
    match = re.match(r"(.{15,}?[.!?])(?:\s+[A-Z`\"]|$)", paragraph, re.S)
    return match.group(1) if match else paragraph


def _plain_characters(text: str) -> str:
    """Replace typographic characters with their ASCII forms."""
    table = {
        "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-",
        "\u2014": "--", "\u2026": "...", "\u00a0": " ", "\u2022": "-", "\u2192": "->",
        "\u00b6": "",
    }  # fmt: skip
    return text.translate({ord(key): value for key, value in table.items()}).expandtabs(8)


def _drop_doctests(text: str) -> str:
    """Remove interactive examples: each prompt line and its output up to a blank line."""
    kept: list[str] = []
    inside = False
    for line in text.split("\n"):
        if line.lstrip().startswith(">>>"):
            inside = True
        elif not line.strip():
            inside = False
        if not inside:
            kept.append(line)
    return "\n".join(kept)


def _unwrap(block: str) -> str:
    """Join the wrapped lines of one block; list items and short lines keep their line."""
    out: list[str] = []
    previous = ""
    for line in block.split("\n"):
        stripped = line.strip()
        if not stripped or re.fullmatch(r"[-=*~#^_+. ]{3,}", stripped):
            continue
        item = re.match(r"([-*+o]|\d+[.)]|\w+:|\S+ --?) ", stripped)
        if out and not item and len(previous) >= WRAP_WIDTH:
            out[-1] += " " + stripped
        else:
            out.append(re.sub(r"^[*+o] ", "- ", stripped))
        previous = stripped
    return "\n".join(re.sub(r"[ \t]{2,}", " ", line) for line in out)


def _simplify_markup(text: str) -> str:
    """Reduce reStructuredText roles, literals and emphasis to plain text."""
    text = re.sub(r":(?:\w+:)?\w+:`[~!]?([^`]+)`", r"`\1`", text)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    text = re.sub(r"(?<![\w*])\*\*([^*\n]+)\*\*(?![\w*])", r"\1", text)
    text = re.sub(r"(?<![\w*(,])\*(\w[^*\n]*?)\*(?![\w*])", r"\1", text)
    text = re.sub(r"\.\. \w+::\s*", "", text)
    return re.sub(r"::(\s|$)", r":\1", text).strip()
