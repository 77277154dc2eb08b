"""Answers requests by a script, without an engine."""

import asyncio
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tandem.api.body import parse_object
from tandem.jobs.answerer import Load
from tandem.jobs.request_line import RequestLine


def answer_body(
    text: str, num_prompt_tokens: int = 3, num_output_tokens: int = 5
) -> dict[str, Any]:
    """What an answer must have, and a text."""
    usage = {"prompt_tokens": num_prompt_tokens, "completion_tokens": num_output_tokens}
    return {"text": text, "usage": usage}


class ScriptedRequest:
    def __init__(self, owner: "ScriptedAnswerer", request: RequestLine, load: Load) -> None:
        self._owner = owner
        self._request = request
        self._load = load

    @property
    def load(self) -> Load:
        return self._load

    async def run(self) -> dict[str, Any]:
        owner = self._owner
        owner.started.append(self._request.number)
        owner.num_running += 1
        owner.max_running = max(owner.max_running, owner.num_running)
        try:
            await owner.think(self._request)
            return answer_body(f"answer to {self._request.custom_id}")
        finally:
            owner.num_running -= 1


async def at_once(request: RequestLine) -> None:
    """A turn of the event loop."""
    await asyncio.sleep(0)


class ScriptedAnswerer:
    """Answers every request with its own custom id, after `think`; `prepare_hook` may raise."""

    def __init__(
        self,
        think: Callable[[RequestLine], Any] = at_once,
        prepare_hook: Callable[[RequestLine], None] = lambda request: None,
        load: Load | None = None,
    ) -> None:
        self.think = think
        self.prepare_hook = prepare_hook
        self.started: list[int] = []
        self.num_running = 0
        self.max_running = 0
        self._load = load or Load(1, 3)

    def prepare(self, request: RequestLine) -> ScriptedRequest:
        self.prepare_hook(request)
        return ScriptedRequest(self, request, self._load)


def request_line(custom_id: object, **changes: object) -> bytes:
    """A line of a job's input, newline included."""
    fields = {
        "custom_id": custom_id,
        "method": "POST",
        "url": "/v1/completions",
        "body": {"prompt": "Hi"},
        **changes,
    }
    return json.dumps(fields).encode() + b"\n"


def write_requests(path: Path, custom_ids: Iterable[str]) -> None:
    """An input file."""
    with path.open("wb") as file:
        file.writelines(map(request_line, custom_ids))


def read_results(path: Path) -> list[dict[str, Any]]:
    """The lines of an output file; each must be whole."""
    data = path.read_bytes()
    assert not data or data.endswith(b"\n")
    return [parse_object(line) for line in data.splitlines()]


def line_numbers(results: list[dict[str, Any]]) -> list[int]:
    """The input lines to which results belong, in the output's order."""
    return [int(result["id"].rpartition("_")[2]) for result in results]
