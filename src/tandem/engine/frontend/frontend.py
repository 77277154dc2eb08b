"""Takes prompts in and starts their generation."""

import itertools
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tandem.engine.clients.client import EngineClient
from tandem.engine.frontend.assembler import OutputAssembler
from tandem.engine.frontend.generation import Generation, Sample
from tandem.engine.frontend.prompts import Prompt, PromptReader, check_samples
from tandem.engine.frontend.sample_seeds import sample_seed
from tandem.engine.frontend.tokenizer import Tokenizer
from tandem.spec.errors import RequestError
from tandem.spec.request import EngineRequest
from tandem.spec.sampling import SamplingParams


@dataclass(frozen=True, slots=True)
class Job:
    """A prompt and how to continue it, `num_samples` times.

    Raises:
        RequestError: a number of samples out of range.
    """

    prompt: Prompt
    sampling: SamplingParams
    num_samples: int = 1
    priority: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "num_samples", check_samples(self.num_samples))


class Frontend(PromptReader):
    """The text side of an engine; may be used from several threads.

    Args:
        client: the engine; not owned.
        tokenizer: None if the model has none; prompts must then be token ids, and text is empty.
        vocab_size: token ids of prompts lie below it.
        max_model_len: most tokens of prompt and output together.
        max_queued: most sequences that the engine lets wait; None: no bound.
    """

    def __init__(
        self,
        client: EngineClient,
        tokenizer: Tokenizer | None,
        vocab_size: int,
        max_model_len: int,
        max_queued: int | None = None,
    ) -> None:
        super().__init__(tokenizer, vocab_size, max_model_len)
        self.client = client
        self._max_queued = max_queued
        self._name = uuid.uuid4().hex[:8]
        self._numbers = itertools.count()

    def start(self, jobs: Sequence[Job]) -> Generation:
        """Submit all samples of all jobs; iterate over the result to follow them.

        Raises:
            RequestError: more samples than the queue ever holds, or parameters that this model
                cannot follow.
            EngineDeadError: the engine has stopped.
        """
        self._check_queue(sum(job.num_samples for job in jobs))
        for job in jobs:
            self.check_sampling(job.sampling)
        return Generation(
            self.client,
            [
                self._sample(job, prompt_index, sample_index)
                for prompt_index, job in enumerate(jobs)
                for sample_index in range(job.num_samples)
            ],
        )

    def _check_queue(self, num_sequences: int) -> None:
        """Refuse at once what would be refused as overload however often it came back."""
        holds = None if self._max_queued is None else max(1, self._max_queued)
        if holds is not None and num_sequences > holds:
            raise RequestError(
                f"prompts times n make {num_sequences} sequences, but the queue never holds more "
                f"than {holds} (max_num_queued_reqs); send fewer at a time",
                param="n",
            )

    def _sample(self, job: Job, prompt_index: int, sample_index: int) -> Sample:
        sampling = job.sampling
        request = EngineRequest(
            request_id=f"{self._name}-{next(self._numbers)}",
            prompt_token_ids=job.prompt.token_ids,
            sampling=replace(sampling, stop=(), seed=sample_seed(sampling.seed, sample_index)),
            priority=job.priority,
        )
        assembler = OutputAssembler(
            self._tokenizer, sampling, prompt_index, sample_index, job.prompt.text_context
        )
        return Sample(request, assembler)
