"""`tandem batch --accelerator none`: from a file of requests to a file of results."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

from tandem.bench.batch.work import Answered, Asked
from tandem.compose import open_in_child, open_service
from tandem.jobs.batch import Batch
from tandem.jobs.settings import JobSettings
from tandem.spec.config import EngineConfig
from tandem.spec.progress import no_progress


class TandemJob:
    """Runs jobs on one engine, in a process of its own as the command has it; loaded once.

    Args:
        folder: where requests, results and journals are written.
    """

    def __init__(self, config: EngineConfig, folder: Path) -> None:
        self._config, self._folder = config, folder
        self._service = open_service(config, open_in_child, no_progress)

    def run(self, asked: Sequence[Asked]) -> Answered:
        """All requests; reading the input, tokens to text, results and journal count.

        Raises:
            KeyboardInterrupt: a signal has ended the job; it takes both kinds for itself.
        """
        given, results = self._folder / "requests.jsonl", self._folder / "results.jsonl"
        given.write_text("".join(map(_line, range(len(asked)), asked)), "utf-8")
        settings = JobSettings(given, results, ("bench",), restart=True)
        begin = time.perf_counter()
        with Batch(self._config, settings, no_progress) as job:
            end = job.run(self._service, lambda _: None, lambda _: None)
        if not end.is_done:
            raise KeyboardInterrupt
        wall_s = time.perf_counter() - begin
        return _read(results, asked, wall_s)

    def close(self) -> None:
        """End the engine's process."""
        self._service.close()


def _line(number: int, asked: Asked) -> str:
    body = {"prompt": asked.prompt, "max_tokens": asked.new_tokens}
    body |= {"temperature": 0, "ignore_eos": True}
    line = {"custom_id": str(number), "method": "POST", "url": "/v1/completions", "body": body}
    return json.dumps(line) + "\n"


def _read(path: Path, asked: Sequence[Asked], wall_s: float) -> Answered:
    """Results in the order of the requests, each as long as it was asked for."""
    texts, tokens = [""] * len(asked), 0
    for line in path.read_text("utf-8").splitlines():
        result = json.loads(line)
        number, body = int(result["custom_id"]), result["response"]["body"]
        texts[number] = body["choices"][0]["text"]
        assert body["usage"]["completion_tokens"] == asked[number].new_tokens, line
        tokens += asked[number].new_tokens
    assert tokens == sum(each.new_tokens for each in asked), "a request has no result"
    return Answered(tuple(texts), tokens, wall_s)
