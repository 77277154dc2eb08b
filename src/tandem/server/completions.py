"""POST /v1/completions."""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from tandem.engine.frontend.frontend import Job
from tandem.engine.frontend.results import Delta, GenerationOutput, SampleOutput
from tandem.server.answer import Answer, Deltas
from tandem.server.body import read_body
from tandem.server.completion_schema import DEFAULT_MAX_TOKENS, CompletionRequest
from tandem.server.context import ServerContext, context_of
from tandem.server.fields import check_sequences
from tandem.server.logprobs import completion_logprobs

router = APIRouter()


@router.post("/v1/completions")
async def create_completion(request: Request) -> Response:
    """Continue prompts."""
    arrived_at = time.perf_counter()
    context = context_of(request)
    body = await read_body(request, CompletionRequest)
    context.check_model(body.model)
    body.check()
    # On a thread: a long prompt must not stall the streams of others.
    jobs = await asyncio.to_thread(_jobs, context, body)
    return await CompletionAnswer(context, body, jobs).respond(request, arrived_at)


def _jobs(context: ServerContext, body: CompletionRequest) -> list[Job]:
    sampling, given, frontend = body.sampling(), body.prompts(), context.frontend
    check_sequences(len(given), body.num_candidates)
    prompts = [frontend.prompt(prompt, body.add_special_tokens is not False) for prompt in given]
    return [
        Job(
            prompt,
            frontend.with_limit(sampling, prompt, DEFAULT_MAX_TOKENS),
            body.num_candidates,
            body.priority,
        )
        for prompt in prompts
    ]


class CompletionAnswer(Answer[CompletionRequest]):
    """Completions of one or several prompts, as OpenAI's objects."""

    def __init__(
        self, context: ServerContext, body: CompletionRequest, jobs: Sequence[Job]
    ) -> None:
        super().__init__(context, body, jobs, "cmpl")

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
            for event in self._echoes(offsets):
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

    def _echoes(self, offsets: dict[int, int]) -> list[dict[str, Any]]:
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
        return self._context.frontend.tokenizer.decode(prompt.token_ids)

    def _logprobs(self, news: SampleOutput | Delta, text_offset: int) -> dict[str, Any] | None:
        if self._body.logprobs is None:
            return None
        tokenizer = self._context.frontend.tokenizer
        return completion_logprobs(tokenizer, news.token_ids, news.logprobs, text_offset)

    def _chunk_head(self) -> dict[str, Any]:
        return {**self._head, "object": "text_completion"}

    def _index(self, prompt_index: int, sample_index: int) -> int:
        return prompt_index * self._body.num_samples + sample_index


def _mean_logprob(sample: SampleOutput) -> float:
    return sum(entry.logprob for entry in sample.logprobs) / max(1, len(sample.logprobs))
