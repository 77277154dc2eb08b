"""From prompts to text over an engine without a model."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.core import CRASH_TOKEN, FOREVER_TOKEN, VOCAB_SIZE, FakeCore, saying
from tests.unit.frontend.conftest import sentencepiece_backend

from tandem.engine.clients.inprocess import InProcessClient
from tandem.engine.frontend.assembler import OutputAssembler
from tandem.engine.frontend.chat_template import ChatTemplate
from tandem.engine.frontend.collector import Collector
from tandem.engine.frontend.frontend import Frontend, Job
from tandem.engine.frontend.results import Delta, GenerationOutput
from tandem.engine.frontend.sample_seeds import sample_seed
from tandem.engine.frontend.stop_strings import StopMatch, StopMatcher
from tandem.engine.frontend.tokenizer import Tokenizer
from tandem.spec.errors import ContextLengthError, EngineDeadError, RequestError
from tandem.spec.request import FinishReason, RequestOutput
from tandem.spec.sampling import SamplingParams

EOS = 1
MAX_MODEL_LEN = 512
SAID = "The quick brown fox jumps over the lazy dog. 🦜 The end."


@pytest.fixture
def core(tokenizer: Tokenizer) -> FakeCore:
    """Says `SAID`, then the end-of-sequence token."""
    return FakeCore(
        step_s=0.001, token_at=saying(tokenizer.encode(SAID, add_special_tokens=False), EOS)
    )


@pytest.fixture
def frontend(core: FakeCore, tokenizer: Tokenizer) -> Iterator[Frontend]:
    client = InProcessClient(lambda _: core)
    yield Frontend(client, tokenizer, VOCAB_SIZE, MAX_MODEL_LEN)
    client.close()


def run(frontend: Frontend, *jobs: Job) -> list[GenerationOutput]:
    collector = Collector(jobs)
    for delta in frontend.start(jobs):
        collector.add(delta)
    return collector.outputs()


def say(frontend: Frontend, **sampling: object) -> GenerationOutput:
    params = SamplingParams(**{"max_tokens": 100, **sampling})
    return run(frontend, Job(frontend.text_prompt("Say it."), params))[0]


def test_text_is_whole_and_the_end_token_has_none(frontend: Frontend) -> None:
    output = say(frontend)
    assert output.prompt == "Say it."
    assert output.prompt_token_ids == frontend.tokenizer.encode("Say it.")
    (sample,) = output.outputs
    assert sample.text == SAID
    assert sample.token_ids[-1] == EOS
    assert (sample.finish_reason, sample.stop_reason) == (FinishReason.STOP, None)


def test_a_prompt_is_continued_and_a_conversation_is_not() -> None:
    """SentencePiece's words begin with their space; only the first word of a text has none."""
    hello, conversation = 256, [{"role": "user", "content": "hello"}]
    core = FakeCore(token_at=saying([hello, hello], EOS))
    client = InProcessClient(lambda _: core)
    tokenizer = Tokenizer(sentencepiece_backend(), ChatTemplate("hello", {}))
    frontend = Frontend(client, tokenizer, VOCAB_SIZE, MAX_MODEL_LEN)
    prompts = [frontend.token_prompt([hello]), frontend.chat_prompt(conversation)]
    outputs = run(frontend, *[Job(prompt, SamplingParams(max_tokens=2)) for prompt in prompts])
    assert [output.outputs[0].text for output in outputs] == [" hello hello", "hello hello"]
    client.close()


def test_a_stop_token_that_has_a_text_is_silent_unless_wanted(frontend: Frontend) -> None:
    (dot,) = frontend.tokenizer.encode(".", add_special_tokens=False)
    silent = say(frontend, stop_token_ids=(dot,))
    assert silent.outputs[0].text == "The quick brown fox jumps over the lazy dog"
    assert silent.outputs[0].stop_reason == dot
    wanted = say(frontend, stop_token_ids=(dot,), include_stop_str_in_output=True)
    assert wanted.outputs[0].text == "The quick brown fox jumps over the lazy dog."


def test_a_stop_string_ends_the_request_in_the_engine_too(
    frontend: Frontend, core: FakeCore
) -> None:
    params = SamplingParams(max_tokens=None, stop=("own fo", "dog"))
    (output,) = run(frontend, Job(frontend.token_prompt([FOREVER_TOKEN]), params))
    (sample,) = output.outputs
    assert sample.text == "The quick br"
    assert (sample.finish_reason, sample.stop_reason) == (FinishReason.STOP, "own fo")
    assert frontend.client.stats()["num_running"] == 0
    assert len(core.aborted) == 1
    assert core.requests[0].sampling.stop == ()


def test_a_stop_string_can_be_included(frontend: Frontend) -> None:
    (sample,) = say(frontend, stop=("own fo",), include_stop_str_in_output=True).outputs
    assert sample.text == "The quick brown fo"


def test_stop_strings_wait_for_min_tokens(frontend: Frontend) -> None:
    (sample,) = say(frontend, stop=("The",), min_tokens=3).outputs
    assert sample.text == "The quick brown fox jumps over the lazy dog. 🦜 "


def test_length_and_a_held_back_beginning_of_a_stop_string(frontend: Frontend) -> None:
    (sample,) = say(frontend, max_tokens=1, stop=("Thermos",)).outputs
    assert sample.text == frontend.tokenizer.decode(sample.token_ids)
    assert sample.finish_reason is FinishReason.LENGTH


def test_outputs_come_in_the_order_of_prompts_and_samples(tokenizer: Tokenizer) -> None:
    client = InProcessClient(lambda _: FakeCore())
    frontend = Frontend(client, tokenizer, VOCAB_SIZE, MAX_MODEL_LEN)
    params = [SamplingParams(max_tokens=n, seed=5) for n in (9, 1, 4)]
    jobs = [Job(frontend.token_prompt([40 + i]), p, 2) for i, p in enumerate(params)]
    outputs = run(frontend, *jobs)
    client.close()
    assert [o.prompt_token_ids for o in outputs] == [(40,), (41,), (42,)]
    assert [[len(s.token_ids) for s in o.outputs] for o in outputs] == [[9, 9], [1, 1], [4, 4]]
    assert outputs[0].outputs[0].token_ids[0] == 45
    assert outputs[0].outputs[1].token_ids[0] == (40 + (sample_seed(5, 1) or 0)) % 256


def test_seeds_of_samples_differ_and_the_first_is_the_requests_own() -> None:
    assert sample_seed(7, 0) == 7
    assert sample_seed(None, 3) is None
    seeds = {sample_seed(seed, sample) for seed in (-1, 0, 1, 2) for sample in range(1, 50)}
    assert len(seeds) == 4 * 49
    assert all(seed is not None and 0 <= seed < 2**64 for seed in seeds)


def test_logprobs_go_with_their_tokens(frontend: Frontend) -> None:
    (sample,) = say(frontend, logprobs=2, stop=("brown",)).outputs
    assert [entry.top_token_ids[0] for entry in sample.logprobs] == list(sample.token_ids)


@pytest.mark.parametrize("prompt", ["", []])
def test_empty_prompts_are_refused(frontend: Frontend, prompt: str | list[int]) -> None:
    with pytest.raises(RequestError, match="empty"):
        frontend.text_prompt(prompt) if isinstance(prompt, str) else frontend.token_prompt(prompt)


@pytest.mark.parametrize("token_id", [-1, VOCAB_SIZE])
def test_token_ids_outside_the_vocabulary_are_refused(frontend: Frontend, token_id: int) -> None:
    with pytest.raises(RequestError, match=f"{token_id} is outside"):
        frontend.token_prompt([5, token_id])


def test_stop_tokens_outside_the_vocabulary_are_refused(frontend: Frontend) -> None:
    with pytest.raises(RequestError, match=f"{VOCAB_SIZE} is outside") as caught:
        say(frontend, stop_token_ids=(5, VOCAB_SIZE))
    assert caught.value.param == "stop_token_ids"


def test_one_refused_prompt_aborts_its_companions(frontend: Frontend) -> None:
    params = SamplingParams(max_tokens=None)
    jobs = [Job(frontend.token_prompt([FOREVER_TOKEN] * n), params) for n in (1, 600, 2)]
    with pytest.raises(ContextLengthError, match="600 tokens"):
        run(frontend, *jobs)
    assert frontend.client.stats()["num_running"] == 0


def test_closing_the_iterator_aborts(frontend: Frontend, core: FakeCore) -> None:
    job = Job(frontend.token_prompt([FOREVER_TOKEN]), SamplingParams(max_tokens=None), 3)
    deltas = iter(frontend.start([job]))
    next(deltas)
    deltas.close()
    assert frontend.client.stats()["num_running"] == 0
    assert len(core.aborted) == 3


def test_cancelling_a_task_aborts(frontend: Frontend) -> None:
    async def follow(started: asyncio.Event) -> None:
        job = Job(frontend.token_prompt([FOREVER_TOKEN]), SamplingParams(max_tokens=None))
        generation = frontend.start([job])
        await generation.accepted()
        async for _ in generation:
            started.set()

    async def cancel() -> None:
        started = asyncio.Event()
        task = asyncio.create_task(follow(started))
        await started.wait()
        task.cancel()
        await asyncio.wait([task])
        assert (await frontend.client.stats_async())["num_running"] == 0

    asyncio.run(cancel())


def test_acceptance_loses_nothing(frontend: Frontend) -> None:
    async def run() -> str:
        generation = frontend.start([Job(frontend.text_prompt("Say it."), SamplingParams(100))])
        await generation.accepted()
        return "".join([delta.text async for delta in generation])

    assert asyncio.run(run()) == SAID


def test_the_engines_death_reaches_every_caller(frontend: Frontend) -> None:
    running = iter(frontend.start([Job(frontend.token_prompt([FOREVER_TOKEN]), SamplingParams())]))
    next(running)
    with pytest.raises(EngineDeadError):
        run(frontend, Job(frontend.token_prompt([CRASH_TOKEN]), SamplingParams()))
    with pytest.raises(EngineDeadError):
        list(running)


def test_without_a_tokenizer_token_ids_still_work() -> None:
    client = InProcessClient(lambda _: FakeCore())
    frontend = Frontend(client, None, VOCAB_SIZE, MAX_MODEL_LEN)
    (output,) = run(frontend, Job(frontend.token_prompt([9]), SamplingParams(max_tokens=3)))
    with pytest.raises(RequestError, match="no tokenizer"):
        frontend.text_prompt("hello")
    with pytest.raises(RequestError, match="no stop string can be found"):
        run(frontend, Job(frontend.token_prompt([9]), SamplingParams(stop=("END",))))
    client.close()
    assert (output.outputs[0].text, output.outputs[0].token_ids) == ("", (9, 9, 9))


def test_more_than_the_queue_ever_holds_is_refused_for_good(tokenizer: Tokenizer) -> None:
    """Not as overload, which invites the caller to come back with the same."""
    client = InProcessClient(lambda _: FakeCore())
    frontend = Frontend(client, tokenizer, VOCAB_SIZE, MAX_MODEL_LEN, max_queued=4)
    prompt, params = frontend.token_prompt([9]), SamplingParams(max_tokens=1)
    assert len(run(frontend, Job(prompt, params, 4))[0].outputs) == 4
    for jobs in ([Job(prompt, params, 5)], [Job(prompt, params, 2)] * 3):
        with pytest.raises(RequestError, match="queue never holds more than 4") as caught:
            frontend.start(jobs)
        assert caught.value.param == "n"
    client.close()


def test_the_default_limit_leaves_given_ones_alone(frontend: Frontend) -> None:
    prompt = frontend.token_prompt([5] * (MAX_MODEL_LEN - 7))

    def limit(**values: Any) -> int | None:
        return frontend.with_limit(SamplingParams(**values), prompt, 128).max_tokens

    assert limit(max_tokens=None) == 7
    assert limit(max_tokens=100) == 100
    assert limit(max_tokens=None, min_tokens=9) == 9


@given(
    stops=st.lists(st.sampled_from(["fox", "o", "ver the", "🦜", "end.", "zz"]), max_size=3),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=40),
)
def test_text_does_not_depend_on_how_outputs_are_merged(
    tokenizer: Tokenizer, stops: list[str], sizes: list[int]
) -> None:
    token_ids = tokenizer.encode(SAID, add_special_tokens=False)
    params = SamplingParams(stop=tuple(stops))
    deltas = list(_assemble(OutputAssembler(tokenizer, params, 0, 0), token_ids, sizes))
    matched = StopMatcher(tuple(stops)).feed(SAID)
    expected = matched.text if isinstance(matched, StopMatch) else SAID
    assert "".join(delta.text for delta in deltas) == expected
    reason = FinishReason.STOP if isinstance(matched, StopMatch) else FinishReason.LENGTH
    assert deltas[-1].finish_reason is reason


def _assemble(
    assembler: OutputAssembler, token_ids: tuple[int, ...], sizes: list[int]
) -> Iterator[Delta]:
    position = 0
    for size in [*sizes, len(token_ids)]:
        chunk, position = token_ids[position : position + size], position + size
        ended = FinishReason.LENGTH if position >= len(token_ids) else None
        delta = assembler.feed(RequestOutput("r", chunk, ended))
        yield delta
        if delta.finish_reason is not None:
            return
