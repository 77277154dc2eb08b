"""A `tandem serve` of the demo model, as a user would start it."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import openai
import pytest

import tandem

COMMAND = [sys.executable, "-m", "tandem.cli.main"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@dataclass
class Serving:
    """A server process and its address."""

    process: "subprocess.Popen[str]"
    url: str

    def openai(self) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=60)


def run_tandem(*args: str, timeout_s: float = 60) -> "subprocess.CompletedProcess[str]":
    """Run one command to its end."""
    return subprocess.run(
        [*COMMAND, *args], env=ENVIRONMENT, capture_output=True, text=True, timeout=timeout_s
    )


def start_server(*args: str) -> Serving:
    """Start `tandem serve` on any port and wait until it serves."""
    process = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", "--log-level", "warning", *args],
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        found = re.search(r"tandem: serving .* at (http://\S+)/v1", line)
        if found:
            return Serving(process, found[1])
    raise AssertionError(f"the server ended with status {process.wait()}")


@pytest.fixture(scope="session")
def serving() -> Iterator[Serving]:
    running = start_server("demo", "--accelerator", "none", "--max-model-len", "512")
    with running.process:
        yield running
        running.process.terminate()


@pytest.fixture(scope="session")
def llm() -> Iterator["tandem.LLM"]:
    with tandem.LLM("demo", accelerator="none", max_model_len=512) as loaded:
        yield loaded
