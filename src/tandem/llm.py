"""The Python API."""

import contextlib
import operator
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tandem.compose import Service, open_in_child, open_in_process, open_service
from tandem.engine.frontend.chat_template import Message
from tandem.engine.frontend.collector import Collector
from tandem.engine.frontend.frontend import Frontend, Job
from tandem.engine.frontend.prompts import Prompt, PromptInput, PromptReader
from tandem.engine.frontend.results import Delta, GenerationOutput
from tandem.engine.sizing.plan_options import engine_config
from tandem.spec.config import EngineConfig
from tandem.spec.errors import RequestError
from tandem.spec.progress import Progress, no_progress
from tandem.spec.sampling import SamplingParams

Prompts = str | Sequence[int] | Sequence[PromptInput]
"""One prompt or several."""

_DEFAULT_MAX_TOKENS = SamplingParams().max_tokens or 1


class LLM:
    """A loaded model that generates text.

    ```python
    with tandem.LLM("demo") as llm:
        print(llm.generate("The purpose of this function is")[0].outputs[0].text)
    ```

    Usable from several threads and event loops at once; their requests run as one batch. A prompt
    is a text or a sequence of token ids. Without sampling parameters, those of `SamplingParams()`,
    but for a prompt that leaves the context less than its `max_tokens`.

    Args:
        model: a model directory, a Hugging Face id in the local cache, or `demo`.
        isolated: run the engine in a process of its own.
        progress: called while the model loads.
        options: the other fields of `EngineConfig`, by name; what a `plan` among them decides need
            not be given.

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
        config = engine_config({"model": model, **options})
        self._own(open_service(config, open_client, progress))

    @classmethod
    def load(
        cls,
        config: EngineConfig,
        *,
        progress: Progress = no_progress,
        chat_template: Path | None = None,
        check: Callable[[PromptReader], object] = lambda reader: None,
    ) -> "LLM":
        """As `LLM(...)`, from a configuration.

        Args:
            chat_template: replaces the model's own.
            check: called before the weights are read; what it raises ends the load.
        """
        service = open_service(config, progress=progress, chat_template=chat_template, check=check)
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
        prompts: Prompts,
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
        prompts: Prompts,
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
        job = self._job(self.frontend.chat_prompt(messages), sampling_params, n)
        collector = Collector([job])
        for delta in self.frontend.start([job]):
            collector.add(delta)
        return collector.outputs()[0]

    def stream_chat(
        self, messages: Sequence[Message], sampling_params: SamplingParams | None = None
    ) -> Generator[Delta, None, None]:
        """As `chat`, piece by piece. Closing the iterator aborts the answer."""
        job = self._job(self.frontend.chat_prompt(messages), sampling_params, 1)
        yield from self.frontend.start([job])

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
        prompts: Prompts,
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        n: int,
    ) -> list[Job]:
        checked = [self.frontend.prompt(prompt) for prompt in _as_list(prompts)]
        each = _one_each(sampling_params, len(checked))
        return [self._job(prompt, params, n) for prompt, params in zip(checked, each, strict=True)]

    def _job(self, prompt: Prompt, params: SamplingParams | None, n: int) -> Job:
        if params is None:
            unlimited = SamplingParams(max_tokens=None)
            params = self.frontend.with_limit(unlimited, prompt, _DEFAULT_MAX_TOKENS)
        return Job(prompt, params, n)


def _as_list(prompts: Prompts) -> list[PromptInput]:
    if isinstance(prompts, str):
        return [prompts]
    if isinstance(prompts, Mapping | bytes) or not isinstance(prompts, Iterable):
        raise RequestError(
            f"prompts must be a text, token ids, or a list of such, not {type(prompts).__name__}",
            param="prompt",
        )
    items: list[Any] = list(prompts)
    return [items] if items and all(map(_is_integer, items)) else items


def _is_integer(item: object) -> bool:
    """True for booleans too, which are refused as token ids; not for arrays of one element."""
    if getattr(item, "ndim", 0):
        return False
    try:
        operator.index(item)  # pyright: ignore[reportArgumentType]
    except TypeError:
        return False
    return True


def _one_each(
    sampling_params: SamplingParams | Sequence[SamplingParams] | None, count: int
) -> Sequence[SamplingParams | None]:
    if sampling_params is None or isinstance(sampling_params, SamplingParams):
        return [sampling_params] * count
    if not isinstance(sampling_params, Sequence) or not all(
        isinstance(params, SamplingParams) for params in sampling_params
    ):
        raise RequestError(
            "sampling_params must be a SamplingParams or a list of them", param="sampling_params"
        )
    if len(sampling_params) != count:
        raise RequestError(
            f"{len(sampling_params)} sampling parameters for {count} prompts; give one, or one "
            "for each",
            param="sampling_params",
        )
    return sampling_params
