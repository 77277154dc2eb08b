"""Render corpus units as training documents: plain text and chats, chosen at random.

Every epoch draws a new mixture from the same units, so the model meets a docstring under its
heading inside a long module document, alone without a heading, and as the answer to a question.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence

from cleaning import first_sentence, is_signature
from corpus import Unit

BOS, EOS, PAD = "<|bos|>", "<|eos|>", "<|pad|>"
SYSTEM, USER, ASSISTANT, END = "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"
SPECIAL_TOKENS = (BOS, EOS, PAD, SYSTEM, USER, ASSISTANT, END)

SYSTEM_PROMPTS = (
    "You are a helpful assistant.",
    "You answer questions about Python.",
    "You answer questions about the Python standard library.",
    "You are a concise assistant.",
)
SENTENCE_PROMPT = "Answer in one sentence."
QUESTIONS = {
    "module": (
        "What is the {name} module?", "Explain the {name} module.",
        "What is the {name} module for?", "What does the {name} module do?",
        "Tell me about the {name} module.", "Describe the module {name}.",
        "What can I do with the {name} module?",
    ),
    "class": (
        "What is {name}?", "Explain the class {name}.", "What does {name} do?",
        "Describe {name}.", "What is the {name} class for?", "Tell me about {name}.",
    ),
    "function": (
        "What does {name} do?", "Explain {name}.", "What is {name}?",
        "How do I use {name}?", "Describe the function {name}.", "What is {name} for?",
    ),
    "topic": (
        "Tell me about {name} in Python.", "Explain {name}.", "What is {name}?",
        "What does the Python documentation say about {name}?", "How does {name} work?",
    ),
}  # fmt: skip
SMALL_TALK = (
    (
        ("Hello", "Hi", "Hello!", "Hi there!", "Hey", "Good morning"),
        "Hello! Ask me about a module, a class or a function of the Python standard library.",
    ),
    (
        ("Who are you?", "What are you?", "What is your name?", "Introduce yourself."),
        "I am a very small language model. I have only read the documentation that ships with"
        " Python, so I can only talk about that.",
    ),
    (
        ("What can you do?", "Help", "How can you help me?", "What do you know?"),
        "I can recite what the documentation of Python says about a module, a class, a function"
        " or a statement. I am often wrong about the details.",
    ),
    (("Thanks", "Thank you!", "Thank you", "Great, thanks."), "You are welcome."),
)


def heading(unit: Unit) -> str:
    """Return the line that introduces a unit in a longer document."""
    arguments = unit.signature.partition("(")[2]
    if unit.kind == "function":
        return f"{unit.name}({arguments or ')'}"
    return f"class {unit.name}" if unit.kind == "class" else unit.name


def plain(unit: Unit, with_heading: bool) -> str:
    """Return the text of a unit, under its heading or alone."""
    title = heading(unit) if with_heading else ""
    return f"{title}\n\n{unit.text}" if title else unit.text


def by_document(units: Sequence[Unit]) -> dict[str, list[Unit]]:
    """Group units by their document, keeping the order."""
    groups: dict[str, list[Unit]] = defaultdict(list)
    for unit in units:
        groups[unit.document].append(unit)
    return dict(groups)


def plain_documents(units: Sequence[Unit], rng: random.Random, whole: float) -> Iterator[str]:
    """Yield plain documents: whole modules with probability `whole`, single units otherwise."""
    for members in by_document(units).values():
        titled = [unit for unit in members if unit.kind != "comment"]
        comments = [unit for unit in members if unit.kind == "comment"]
        if rng.random() < whole:
            yield from _wrap("\n\n".join(plain(unit, True) for unit in titled))
        else:
            for unit in titled:
                yield from _wrap(plain(unit, rng.random() < 0.4))
        size = rng.choice((1, 2, 4, 8))
        for start in range(0, len(comments), size):
            yield from _wrap("\n\n".join(u.text for u in comments[start : start + size]))


def _wrap(text: str) -> Iterator[str]:
    """Yield `text` between the document tokens, or nothing when it is empty."""
    if text:
        yield f"{BOS}{text}{EOS}"


def answerable(unit: Unit) -> list[tuple[str, str, str]]:
    """Return (kind, name, answer) for each thing the unit can be asked about."""
    if unit.kind not in QUESTIONS or not unit.name or len(unit.name) > 60:
        return []
    found: list[tuple[str, str, str]] = []
    kind, name, answer = unit.kind, unit.name, list[str]()
    for paragraph in unit.text.split("\n\n"):
        if is_signature(paragraph) and unit.kind == "class":
            found.append((kind, name, _shorten(answer)))
            method = paragraph.partition("(")[0].rpartition(".")[2]
            kind, name, answer = "function", f"{unit.name}.{method}", []
        else:
            answer.append(paragraph)
    found.append((kind, name, _shorten(answer)))
    return [item for item in found if len(item[2]) > 10]


def _shorten(paragraphs: Sequence[str], limit: int = 800) -> str:
    """Join leading paragraphs up to `limit` characters."""
    kept: list[str] = []
    for paragraph in paragraphs:
        if kept and sum(map(len, kept)) + len(paragraph) > limit:
            break
        kept.append(paragraph)
    return "\n\n".join(kept)


def chat_documents(units: Sequence[Unit], rng: random.Random, share: float) -> Iterator[str]:
    """Yield chats about a random `share` of the answerable things, one to four turns each."""
    for members in by_document(units).values():
        items = [item for unit in members for item in answerable(unit) if rng.random() < share]
        rng.shuffle(items)
        while items:
            turns = rng.choice((1, 1, 1, 2, 3, 4))
            yield _chat(items[:turns], rng)
            items = items[turns:]
    for _ in range(max(1, int(len(units) * share / 120))):
        questions, answer = rng.choice(SMALL_TALK)
        yield f"{BOS}{_turn(USER, rng.choice(questions))}{_turn(ASSISTANT, answer)}"


def _chat(items: Sequence[tuple[str, str, str]], rng: random.Random) -> str:
    """Render one conversation, in exactly the form of the chat template."""
    short = rng.random() < 0.08
    parts = [BOS]
    if short or rng.random() < 0.25:
        parts.append(_turn(SYSTEM, SENTENCE_PROMPT if short else rng.choice(SYSTEM_PROMPTS)))
    for kind, name, answer in items:
        parts.append(_turn(USER, _question(kind, name, rng)))
        parts.append(_turn(ASSISTANT, first_sentence(answer) if short else answer))
    return "".join(parts)


def _question(kind: str, name: str, rng: random.Random) -> str:
    """Word a question about `name`, sometimes in backticks or with parentheses."""
    if kind == "function" and rng.random() < 0.3:
        name += "()"
    if kind != "topic" and rng.random() < 0.4:
        name = f"`{name}`"
    if kind == "topic" and name.startswith("The "):
        name = "the " + name[4:]
    question = rng.choice(QUESTIONS[kind]).format(name=name)
    return question.lower() if rng.random() < 0.03 else question


def _turn(role: str, content: str) -> str:
    """Render one message as the chat template does."""
    return f"{role}\n{content.strip()}{END}\n"
