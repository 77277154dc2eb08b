"""Continues prompts."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from tandem.api.answer import Answer, Deltas
from tandem.api.completion_schema import DEFAULT_MAX_TOKENS, CompletionRequest
from tandem.api.fields import check_sequences
from tandem.api.logprobs import completion_logprobs
from tandem.api.named_model import NamedModel
from tandem.engine.frontend.frontend import Job
from tandem.engine.frontend.prompts import PromptReader
from tandem.engine.frontend.results import Delta, GenerationOutput, SampleOutput


class CompletionAnswer(Answer[CompletionRequest]):
    """Completions of one or several prompts, as OpenAI's objects."""

    def __init__(self, model: NamedModel, body: CompletionRequest, jobs: Sequence[Job]) -> None:
        super().__init__(model, body, jobs, "cmpl")

    @classmethod
    def prepare(cls, model: NamedModel, body: CompletionRequest) -> "CompletionAnswer":
        """See `Answer.prepare`."""
        model.check_name(body.model)
        body.check()
        return cls(model, body, _jobs(model.reader, body))

    async def whole(self, deltas: Deltas) -> dict[str, Any]:
        """The answer once everything is generated."""
        outputs = await self._collect(deltas)
        choices = [
            self._choice(prompt_index, sample_index, sample)
            for prompt_index, output in enumerate(outputs)
            for sample_index, sample in enumerate(self._best(output))
        ]
        return {**self._chunk_head(), "choices": choices, "usage": self._usage.report()}

    async def chunks(self, deltas: Deltas) -> AsyncGenerator[dict[str, Any], None]:
        """The answer as it comes."""
        offsets: dict[int, int] = {}
        async with aclosing(deltas):
            for event in self._echoes():
                yield event
            async for delta in deltas:
                self._usage.add(delta)
                if delta.text or delta.logprobs or delta.finish_reason:
                    yield self._chunk([self._chunk_choice(delta, offsets)])
        if self._body.wants_usage:
            yield self._usage_chunk()

    def _best(self, output: GenerationOutput) -> Sequence[SampleOutput]:
        wanted = self._body.num_samples
        if len(output.outputs) == wanted:
            return output.outputs
        return sorted(output.outputs, key=_mean_logprob, reverse=True)[:wanted]

    def _choice(self, prompt_index: int, sample_index: int, sample: SampleOutput) -> dict[str, Any]:
        return {
            "index": self._index(prompt_index, sample_index),
            "text": self._echo(prompt_index) + sample.text,
            "logprobs": self._logprobs(sample, 0),
            "finish_reason": sample.finish_reason,
            "stop_reason": sample.stop_reason,
        }

    def _chunk_choice(self, delta: Delta, offsets: dict[int, int]) -> dict[str, Any]:
        index = self._index(delta.prompt_index, delta.sample_index)
        offset = offsets.get(index, 0)
        logprobs = self._logprobs(delta, offset)
        offsets[index] = offset + sum(map(len, logprobs["tokens"])) if logprobs else 0
        return {
            "index": index,
            "text": delta.text,
            "logprobs": logprobs,
            "finish_reason": delta.finish_reason,
            "stop_reason": delta.stop_reason,
        }

    def _echoes(self) -> list[dict[str, Any]]:
        if not self._body.echo:
            return []
        return [
            self._chunk(
                [
                    {
                        "index": self._index(prompt_index, sample_index),
                        "text": self._echo(prompt_index),
                        "logprobs": None,
                        "finish_reason": None,
                    }
                ]
            )
            for prompt_index, job in enumerate(self._jobs)
            for sample_index in range(job.num_samples)
        ]

    def _echo(self, prompt_index: int) -> str:
        if not self._body.echo:
            return ""
        prompt = self._jobs[prompt_index].prompt
        if prompt.text is not None:
            return prompt.text
        return self._reader.tokenizer.decode(prompt.token_ids)

    def _logprobs(self, news: SampleOutput | Delta, text_offset: int) -> dict[str, Any] | None:
        if self._body.logprobs is None:
            return None
        tokenizer = self._reader.tokenizer
        return completion_logprobs(tokenizer, news.token_ids, news.logprobs, text_offset)

    def _chunk_head(self) -> dict[str, Any]:
        return {**self._head, "object": "text_completion"}

    def _index(self, prompt_index: int, sample_index: int) -> int:
        return prompt_index * self._body.num_samples + sample_index


def _mean_logprob(sample: SampleOutput) -> float:
    return sum(entry.logprob for entry in sample.logprobs) / max(1, len(sample.logprobs))


def _jobs(reader: PromptReader, body: CompletionRequest) -> list[Job]:
    sampling, given = body.sampling(), body.prompts()
    check_sequences(len(given), body.num_candidates)
    prompts = [reader.prompt(prompt, body.add_special_tokens is not False) for prompt in given]
    return [
        Job(
            prompt,
            reader.with_limit(sampling, prompt, DEFAULT_MAX_TOKENS),
            body.num_candidates,
            body.priority,
        )
        for prompt in prompts
    ]
