"""The Python API."""

import contextlib
import weakref
from collections.abc import AsyncGenerator, Generator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tandem.compose import Service, open_in_child, open_in_process, open_service
from tandem.engine.frontend.chat_template import Message
from tandem.engine.frontend.collector import Collector
from tandem.engine.frontend.frontend import Frontend, Job, Prompt
from tandem.engine.frontend.results import Delta, GenerationOutput
from tandem.spec.config import EngineConfig
from tandem.spec.errors import RequestError
from tandem.spec.progress import Progress, no_progress
from tandem.spec.sampling import SamplingParams

PromptInput = str | Sequence[int]


class LLM:
    """A loaded model that generates text.

    ```python
    with tandem.LLM("demo") as llm:
        print(llm.generate("The purpose of this function is")[0].outputs[0].text)
    ```

    Usable from several threads and event loops at once; their requests run as one batch. A prompt
    is a text or a sequence of token ids. Without sampling parameters, those of `SamplingParams()`.

    Args:
        model: a model directory, a Hugging Face id in the local cache, or `demo`.
        isolated: run the engine in a process of its own.
        progress: called while the model loads.
        options: the other fields of `EngineConfig`, by name.

    Raises:
        TandemError: the options contradict each other, or the model cannot be loaded.
    """

    def __init__(
        self,
        model: str = "demo",
        *,
        isolated: bool = False,
        progress: Progress = no_progress,
        **options: Any,
    ) -> None:
        open_client = open_in_child if isolated else open_in_process
        self._own(open_service(EngineConfig(model, **options), open_client, progress))

    @classmethod
    def load(
        cls,
        config: EngineConfig,
        *,
        progress: Progress = no_progress,
        chat_template: Path | None = None,
    ) -> "LLM":
        """As `LLM(...)`, from a configuration; `chat_template` replaces the model's own."""
        service = open_service(config, progress=progress, chat_template=chat_template)
        return cls.over(service)

    @classmethod
    def over(cls, service: Service) -> "LLM":
        """An LLM over a service that is already loaded; takes it over."""
        llm = cls.__new__(cls)
        llm._own(service)
        return llm

    @property
    def frontend(self) -> Frontend:
        """The text side: tokenizer, prompts, running generations."""
        return self._service.frontend

    def generate(
        self,
        prompts: str | Sequence[int] | Sequence[PromptInput],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        n: int = 1,
    ) -> list[GenerationOutput]:
        """Continue each prompt `n` times; outputs come in the order of the prompts.

        `sampling_params` is one for all prompts, or one for each.

        Raises:
            RequestError: a prompt or parameter is invalid; nothing goes on running then.
            EngineDeadError: the engine has stopped.
        """
        jobs = self._jobs(prompts, sampling_params, n)
        collector = Collector(jobs)
        for delta in self.frontend.start(jobs):
            collector.add(delta)
        return collector.outputs()

    async def agenerate(
        self,
        prompts: str | Sequence[int] | Sequence[PromptInput],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        n: int = 1,
    ) -> list[GenerationOutput]:
        """As `generate`, without blocking the event loop; cancelling it aborts the requests."""
        jobs = self._jobs(prompts, sampling_params, n)
        collector = Collector(jobs)
        async with contextlib.aclosing(self.frontend.start(jobs).__aiter__()) as deltas:
            async for delta in deltas:
                collector.add(delta)
        return collector.outputs()

    def stream(
        self, prompt: PromptInput, sampling_params: SamplingParams | None = None, n: int = 1
    ) -> Generator[Delta, None, None]:
        """Continue one prompt, piece by piece. Closing the iterator aborts the request.

        Raises:
            TandemError: as `generate`, at the first `next`.
        """
        yield from self.frontend.start(self._jobs([prompt], sampling_params, n))

    async def astream(
        self, prompt: PromptInput, sampling_params: SamplingParams | None = None, n: int = 1
    ) -> AsyncGenerator[Delta, None]:
        """As `stream`, without blocking the event loop; close it with `contextlib.aclosing`."""
        generation = self.frontend.start(self._jobs([prompt], sampling_params, n))
        async with contextlib.aclosing(generation.__aiter__()) as deltas:
            async for delta in deltas:
                yield delta

    def chat(
        self, messages: Sequence[Message], sampling_params: SamplingParams | None = None, n: int = 1
    ) -> GenerationOutput:
        """Answer a conversation of `{"role", "content"}` messages by the model's chat template.

        Raises:
            RequestError: the model has no chat template, or it refuses the messages.
            EngineDeadError: the engine has stopped.
        """
        job = Job(self.frontend.chat_prompt(messages), sampling_params or SamplingParams(), n)
        collector = Collector([job])
        for delta in self.frontend.start([job]):
            collector.add(delta)
        return collector.outputs()[0]

    def stream_chat(
        self, messages: Sequence[Message], sampling_params: SamplingParams | None = None
    ) -> Generator[Delta, None, None]:
        """As `chat`, piece by piece. Closing the iterator aborts the answer."""
        prompt = self.frontend.chat_prompt(messages)
        yield from self.frontend.start([Job(prompt, sampling_params or SamplingParams())])

    @property
    def description(self) -> tuple[str, ...]:
        """What was loaded where, and what was decided, one line each."""
        return self._service.description

    def stats(self) -> dict[str, Any]:
        """The engine's counters as plain values."""
        return self.frontend.client.stats()

    def close(self) -> None:
        """Stop the engine and free its memory; requests that still run fail."""
        self._finalize()

    def __enter__(self) -> "LLM":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _own(self, service: Service) -> None:
        self._service = service
        # Closes an engine that was forgotten, at the interpreter's end at the latest.
        self._finalize = weakref.finalize(self, service.close)

    def _jobs(
        self,
        prompts: str | Sequence[int] | Sequence[PromptInput],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        n: int,
    ) -> list[Job]:
        checked = [self._prompt(prompt) for prompt in _as_list(prompts)]
        each = _one_each(sampling_params, len(checked))
        return [Job(prompt, params, n) for prompt, params in zip(checked, each, strict=True)]

    def _prompt(self, prompt: PromptInput) -> Prompt:
        if isinstance(prompt, str):
            return self.frontend.text_prompt(prompt)
        return self.frontend.token_prompt(prompt)


def _as_list(prompts: str | Sequence[int] | Sequence[PromptInput]) -> list[PromptInput]:
    if isinstance(prompts, str):
        return [prompts]
    items: list[Any] = list(prompts)
    return [items] if items and all(isinstance(item, int) for item in items) else items


def _one_each(
    sampling_params: SamplingParams | Sequence[SamplingParams] | None, count: int
) -> list[SamplingParams]:
    if sampling_params is None or isinstance(sampling_params, SamplingParams):
        return [sampling_params or SamplingParams()] * count
    if len(sampling_params) != count:
        raise RequestError(
            f"{len(sampling_params)} sampling parameters for {count} prompts; give one, or one "
            "for each",
            param="sampling_params",
        )
    return list(sampling_params)
