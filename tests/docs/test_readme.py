"""The README's commands and snippets do what it says."""

import contextlib
import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
CONSOLE = re.findall(r"^```console\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
PYTHON = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
DOCUMENTED_PORT = "8000"


def commands(first_word: str) -> list[list[str]]:
    """All console lines that begin with a word, split as a shell would."""
    lines = "\n".join(CONSOLE).replace("\\\n", " ").splitlines()
    return [shlex.split(line, comments=True) for line in lines if line.startswith(first_word)]


def tandem(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tandem", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[str]
    port: str


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """`tandem serve` as documented, on a free port instead of the documented one."""
    (line,) = [c for c in commands("tandem serve") if DOCUMENTED_PORT in c]
    arguments = ["0" if word == DOCUMENTED_PORT else word for word in line[1:]]
    process = subprocess.Popen(
        tandem(*arguments), env=environment(), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    port = None
    for text in process.stderr:
        found = re.search(r"http://127\.0\.0\.1:(\d+)", text)
        if found:
            port = found[1]
            break
    assert port is not None, "the server did not say where it listens"
    yield Server(process, port)
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_generate_prints_text() -> None:
    line = next(c for c in commands("tandem generate") if "--prompt" in c)
    done = subprocess.run(
        tandem(*line[1:]),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert len(done.stdout.split()) > 3


def test_every_documented_flag_exists() -> None:
    for line in commands("tandem"):
        if len(line) < 2 or line[1].startswith("-"):
            continue
        first_flag = next((i for i, word in enumerate(line) if word.startswith("--")), len(line))
        command = line[1:first_flag]  # with its subcommand and arguments, which --help ignores
        help_text = subprocess.run(
            tandem(*command, "--help"),
            env=environment(),
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for word in line:
            if word.startswith("--"):
                assert word in help_text, f"{command} has no {word}"


def test_curl_gets_an_answer(server: Server) -> None:
    (line,) = commands("curl")
    url = next(word for word in line if word.startswith("http")).replace(
        DOCUMENTED_PORT, server.port
    )
    body = json.loads(line[line.index("-d") + 1])
    reply = httpx.post(url, json=body, timeout=60).raise_for_status().json()
    assert reply["choices"][0]["message"]["content"].strip()


def test_openai_snippet_streams(server: Server) -> None:
    (snippet,) = [code for code in PYTHON if "openai" in code]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(snippet.replace(DOCUMENTED_PORT, server.port), {})
    assert output.getvalue().strip()


def test_python_api_snippet_prints_text() -> None:
    (snippet,) = [code for code in PYTHON if "LLM(" in code]
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(snippet, {})
    assert output.getvalue().strip()
