"""The README's commands and snippets do what it says."""

import contextlib
import io
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest
from tests.docs.pages import README, blocks, commands, environment, tandem

PYTHON = blocks(README, "python")
DOCUMENTED_PORT = "8000"


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[str]
    port: str


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """`tandem serve` as documented, on a free port instead of the documented one."""
    (line,) = [c for c in commands(README, "tandem serve") if DOCUMENTED_PORT in c]
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


def test_the_picture_is_what_the_demo_prints() -> None:
    (picture,) = [block for block in blocks(README, "") if block.startswith("╭")]
    done = subprocess.run(
        tandem("demo"),
        env={**environment(), "COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert picture in done.stdout


def test_curl_gets_an_answer(server: Server) -> None:
    (line,) = commands(README, "curl")
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
