"""Takes prompts in and starts their generation."""

import itertools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tandem.engine.client import EngineClient
from tandem.engine.frontend.assembler import OutputAssembler
from tandem.engine.frontend.chat_template import Message
from tandem.engine.frontend.generation import Generation, Sample
from tandem.engine.frontend.sample_seeds import sample_seed
from tandem.engine.frontend.tokenizer import Tokenizer
from tandem.spec.errors import RequestError
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams

MAX_SAMPLES = 128


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt that has been checked.

    Attributes:
        token_ids: at least one.
        text: what it was made from, None if token ids were given.
    """

    token_ids: tuple[int, ...]
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A prompt and how to continue it, `num_samples` times."""

    prompt: Prompt
    sampling: SamplingParams
    num_samples: int = 1
    priority: int = 0


class Frontend:
    """The text side of an engine; may be used from several threads.

    Args:
        client: the engine; not owned.
        tokenizer: None if the model has none; prompts must then be token ids, and text is empty.
        vocab_size: token ids of prompts lie below it.
    """

    def __init__(self, client: EngineClient, tokenizer: Tokenizer | None, vocab_size: int) -> None:
        self.client = client
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._name = uuid.uuid4().hex[:8]
        self._numbers = itertools.count()

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer.

        Raises:
            RequestError: it has none.
        """
        if self._tokenizer is None:
            raise RequestError(
                "this model has no tokenizer; give prompts as token ids", param="prompt"
            )
        return self._tokenizer

    def text_prompt(self, text: str, add_special_tokens: bool = True) -> Prompt:
        """Tokenize a prompt.

        Raises:
            RequestError: it is empty or not valid Unicode.
        """
        if not text:
            raise RequestError("the prompt is empty; give at least one character", param="prompt")
        return self._checked(self.tokenizer.encode(text, add_special_tokens), text)

    def token_prompt(self, token_ids: Sequence[int]) -> Prompt:
        """Check a prompt of token ids.

        Raises:
            RequestError: it is empty, or an id lies outside the vocabulary.
        """
        return self._checked(tuple(token_ids), None)

    def chat_prompt(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool = True,
        options: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """Render and tokenize a conversation; `options` are further variables of the template.

        Raises:
            RequestError: there are no messages, or the model's template refuses them.
        """
        if not messages:
            raise RequestError("there are no messages; send at least one", param="messages")
        token_ids = self.tokenizer.encode_chat(messages, add_generation_prompt, options)
        return self._checked(token_ids, None)

    def start(self, jobs: Sequence[Job]) -> Generation:
        """Submit all samples of all jobs; iterate over the result to follow them.

        Raises:
            RequestError: a number of samples out of range.
            EngineDeadError: the engine has stopped.
        """
        return Generation(
            self.client,
            [
                self._sample(job, prompt_index, sample_index)
                for prompt_index, job in enumerate(jobs)
                for sample_index in range(_checked_samples(job.num_samples))
            ],
        )

    def _sample(self, job: Job, prompt_index: int, sample_index: int) -> Sample:
        sampling = job.sampling
        self._check_token_ids(sampling.stop_token_ids, "stop_token_ids")
        request = EngineRequest(
            request_id=f"{self._name}-{next(self._numbers)}",
            prompt_token_ids=job.prompt.token_ids,
            sampling=replace(sampling, stop=(), seed=sample_seed(sampling.seed, sample_index)),
            priority=job.priority,
        )
        assembler = OutputAssembler(self._tokenizer, sampling, prompt_index, sample_index)
        return Sample(request, assembler)

    def _checked(self, token_ids: tuple[int, ...], text: str | None) -> Prompt:
        if not token_ids:
            raise RequestError("the prompt is empty; give at least one token", param="prompt")
        self._check_token_ids(token_ids, "prompt")
        return Prompt(token_ids, text)

    def _check_token_ids(self, token_ids: tuple[int, ...], param: str) -> None:
        for token_id in (min(token_ids), max(token_ids)) if token_ids else ():
            if not 0 <= token_id < self._vocab_size:
                raise RequestError(
                    f"token id {token_id} is outside the model's vocabulary "
                    f"(0 to {self._vocab_size - 1})",
                    param=param,
                )


def _checked_samples(num_samples: int) -> int:
    if not 1 <= num_samples <= MAX_SAMPLES:
        raise RequestError(f"n must be between 1 and {MAX_SAMPLES}, not {num_samples}", param="n")
    return num_samples
