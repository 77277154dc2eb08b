"""Traces in JSON: entries with numbers of tokens, or conversations like ShareGPT's."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from tandem.spec.errors import shown
from tandem.spec.trace_fields import moment_s, token_count, trace_error
from tandem.spec.units import is_count
from tandem.spec.workload import RequestShape

_CHARACTERS_PER_TOKEN = 4
_ASKS, _ANSWERS = ("human", "user"), ("gpt", "assistant")


@dataclass(slots=True)
class JsonTrace:
    """What the entries of a trace come to.

    Attributes:
        requests: in the file's order; without a moment each, all at 0.
        timed: entries say when they came. None: there is no entry.
        conversations: entries that are some, `left_out` of them without a question and its answer.
    """

    path: Path
    requests: list[RequestShape]
    timed: bool | None = None
    conversations: int = 0
    left_out: int = 0

    def add(self, where: str, entry: object) -> None:
        """One entry, or line.

        Raises:
            ConfigError: it is malformed, or has a moment where the first has none.
        """
        if not isinstance(entry, dict):
            raise trace_error(self.path, f"{where} is no object")
        known = cast("dict[str, Any]", entry)
        arrival_s = self._arrival_s(where, known)
        lengths = self._lengths(where, known)
        if lengths is not None:
            self.requests.append(RequestShape(*lengths, arrival_s))

    def notes(self) -> tuple[str, ...]:
        """What was estimated and left out.

        Raises:
            ConfigError: there are conversations, none of which is of use.
        """
        if not self.conversations:
            return ()
        kept = self.conversations - self.left_out
        if not kept and not self.requests:
            raise trace_error(
                self.path,
                f"none of its {self.conversations:,} conversations has a text of 'human' or 'user' "
                "that one of 'gpt' or 'assistant' follows; give a trace with at least one",
            )
        name = self.path.name
        return (
            f"{name}: tokens estimated as {_CHARACTERS_PER_TOKEN} characters each",
            f"{name}: {kept:,} of {self.conversations:,} conversations, first exchanges only",
        )

    def _arrival_s(self, where: str, entry: dict[str, Any]) -> float:
        has = "timestamp" in entry
        if self.timed is None:
            self.timed = has
        if has != self.timed:
            odd = "has a 'timestamp', and those before have none" if has else "has no 'timestamp'"
            raise trace_error(self.path, f"{where} {odd}; give all entries one, or none")
        return moment_s(self.path, where, "timestamp", entry["timestamp"]) if has else 0.0

    def _lengths(self, where: str, entry: dict[str, Any]) -> tuple[int, int] | None:
        """Tokens in and out; None for a conversation without an answer."""
        if "conversations" not in entry:
            for name in ("prompt_tokens", "generated_tokens"):
                if name not in entry:
                    raise trace_error(
                        self.path, f"{where} has neither 'conversations' nor '{name}'"
                    )
            prompt = token_count(self.path, where, "prompt_tokens", entry["prompt_tokens"])
            generated = entry["generated_tokens"]
            return prompt, token_count(self.path, where, "generated_tokens", generated, least=0)
        self.conversations += 1
        texts = self._exchange(where, entry["conversations"])
        if texts is None or not all(texts):
            self.left_out += 1
            return None
        prompt, generated = (max(1, len(text) // _CHARACTERS_PER_TOKEN) for text in texts)
        return prompt, generated

    def _exchange(self, where: str, turns: object) -> tuple[str, str] | None:
        """The first question and the answer that follows it; None if nothing or nobody does."""
        entries = cast("list[Any]", turns) if isinstance(turns, list) else [None]
        if not all(isinstance(turn, dict) for turn in entries):
            raise trace_error(self.path, f"{where}: 'conversations' must be a list of objects")
        talk = cast("list[dict[str, Any]]", entries)
        for asked, answered in pairwise(talk):
            if asked.get("from") in _ASKS:
                if answered.get("from") not in _ANSWERS:
                    return None
                return self._text(where, asked), self._text(where, answered)
        return None

    def _text(self, where: str, turn: dict[str, Any]) -> str:
        value = turn.get("value")
        if not isinstance(value, str):
            raise trace_error(
                self.path, f"{where}: a turn's 'value' must be text, not {shown(value)}"
            )
        return value


def read_json_trace(path: Path, text: str) -> JsonTrace:
    """A list of entries, or one entry in each line (JSON Lines).

    Raises:
        ConfigError: malformed (names the entry or the line).
    """
    made = JsonTrace(path, [])
    for where, entry in _lines(path, text) if text.lstrip()[0] == "{" else _listed(path, text):
        made.add(where, entry)
    return made


def _listed(path: Path, text: str) -> Iterator[tuple[str, object]]:
    for number, entry in enumerate(cast("list[Any]", _parsed(path, "", text)), start=1):
        yield f"entry {number}", entry


def _lines(path: Path, text: str) -> Iterator[tuple[str, object]]:
    # Texts may hold what str.splitlines() takes for the end of a line.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"line {number}", _parsed(path, f"line {number}: ", line)


def _parsed(path: Path, where: str, text: str) -> object:
    try:
        return json.loads(text, parse_int=_json_int)
    except (ValueError, RecursionError) as error:
        remedy = "one object a line, or a list of all" if where else "mend it"
        raise trace_error(path, f"{where}not JSON ({error}); {remedy}") from None


def _json_int(digits: str) -> int | str:
    """One that int() would refuse is left as it is written, so that its entry can be named."""
    return int(digits) if is_count(digits.removeprefix("-")) else digits
