"""`tandem serve` with the demo model, through OpenAI's client, from start to end."""

import re
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import psutil
import pytest
from tests.integration.conftest import Serving, run_tandem, start_server

import tandem

PROMPTS = [
    "The purpose of this function is",
    "def main():",
    "Return a list of",
    "This module provides",
    "Raises an error if",
    "🦜",
]
CHAT: Any = [{"role": "user", "content": "What does the sorted function do?"}]


def complete(serving: Serving, prompt: Any, **options: Any) -> Any:
    options = {"temperature": 0, "max_tokens": 24, **options}
    return serving.openai().completions.create(model="demo", prompt=prompt, **options)


def test_the_server_says_what_the_library_says(serving: Serving, llm: tandem.LLM) -> None:
    params = tandem.SamplingParams(temperature=0, max_tokens=24)
    expected = [output.outputs[0].text for output in llm.generate(PROMPTS, params)]
    assert [choice.text for choice in complete(serving, PROMPTS).choices] == expected
    with ThreadPoolExecutor(len(PROMPTS)) as pool:
        alone = pool.map(lambda prompt: complete(serving, prompt).choices[0].text, PROMPTS)
        assert list(alone) == expected


@pytest.mark.parametrize("prompt", PROMPTS[:2])
def test_a_stream_adds_up(serving: Serving, prompt: str) -> None:
    whole = complete(serving, prompt).choices[0]
    chunks = list(complete(serving, prompt, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.text
    assert chunks[-1].choices[0].finish_reason == whole.finish_reason


def test_a_seed_repeats_its_samples_whatever_else_runs(serving: Serving) -> None:
    options: dict[str, Any] = {"temperature": 1.0, "seed": 17, "n": 3}
    first = [choice.text for choice in complete(serving, PROMPTS[0], **options).choices]
    with ThreadPoolExecutor(4) as pool:
        noise = [pool.submit(complete, serving, prompt) for prompt in PROMPTS]
        again = complete(serving, PROMPTS[0], **options)
        for future in noise:
            future.result()
    assert [choice.text for choice in again.choices] == first
    assert len(set(first)) > 1


def test_chat(serving: Serving, llm: tandem.LLM) -> None:
    client = serving.openai()
    answer = client.chat.completions.create(
        model="demo", messages=CHAT, temperature=0, max_tokens=30, logprobs=True, top_logprobs=3
    )
    params = tandem.SamplingParams(temperature=0, max_tokens=30, logprobs=3)
    expected = llm.chat(CHAT, params).outputs[0]
    (choice,) = answer.choices
    assert choice.message.content == expected.text
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    found = [entry.logprob for entry in choice.logprobs.content]
    assert found == pytest.approx([entry.logprob for entry in expected.logprobs], abs=1e-3)


def test_stop_strings_and_min_tokens(serving: Serving) -> None:
    whole = complete(serving, PROMPTS[0]).choices[0].text
    stop = whole[7:11]
    choice = complete(serving, PROMPTS[0], stop=[stop]).choices[0]
    assert choice.text == whole[: whole.index(stop)]
    assert choice.finish_reason == "stop"


def test_bad_requests_leave_the_server_well(serving: Serving) -> None:
    for prompt, code in [("", None), ([10**9], None), ([5] * 600, "context_length_exceeded")]:
        with pytest.raises(openai.BadRequestError) as caught:
            complete(serving, prompt)
        assert caught.value.code == code
    assert complete(serving, PROMPTS[0]).choices[0].text


def test_a_client_that_leaves_frees_its_memory(serving: Serving) -> None:
    stream = complete(
        serving, PROMPTS[0], stream=True, max_tokens=480, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    stream.close()
    gauges = {"running": 1.0}
    for _ in range(1000):
        text = httpx.get(f"{serving.url}/metrics").text
        names = (
            "num_requests_running",
            "num_requests_waiting",
            r'kv_cache_usage_perc\{tier="host"\}',
        )
        gauges = {name: _gauge(text, name) for name in names}
        if not any(gauges.values()):
            break
    assert not any(gauges.values()), gauges


def _gauge(text: str, name: str) -> float:
    found = re.search(rf"^tandem:{name} (\S+)$", text, re.MULTILINE)
    assert found, name
    return float(found[1])


def test_a_second_server_on_the_port_is_refused_before_loading(serving: Serving) -> None:
    port = serving.url.rsplit(":", 1)[1]
    ran = run_tandem("serve", "demo", "--port", port)
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in ran.stderr


def test_a_model_that_cannot_be_loaded(tmp_path: Any) -> None:
    ran = run_tandem("serve", str(tmp_path), "--port", "0")
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert "config.json" in ran.stderr


def test_termination_leaves_nothing_behind() -> None:
    running = start_server("--accelerator", "none", "--max-model-len", "256")
    with running.process as process:
        (engine,) = psutil.Process(process.pid).children()
        stream = complete(running, PROMPTS[0], stream=True, max_tokens=200)
        next(iter(stream))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert not psutil.pid_exists(engine.pid)
        stream.close()
        assert process.stderr is not None
        # the compiled kernels' binding tells what still holds its objects at the exit
        assert "leaked" not in process.stderr.read()


def test_the_engines_death_ends_an_idle_server_with_a_reason() -> None:
    running = start_server("--accelerator", "none", "--max-model-len", "256")
    with running.process as process:
        (engine,) = psutil.Process(process.pid).children()
        engine.kill()
        assert process.wait(30) == 2
        assert process.stderr is not None
        assert "tandem: error: the engine process was killed by SIGKILL" in process.stderr.read()
