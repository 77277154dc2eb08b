"""Answers conversations."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from tandem.api.answer import Answer, Deltas
from tandem.api.chat_schema import ChatRequest
from tandem.api.logprobs import chat_logprobs
from tandem.api.named_model import NamedModel
from tandem.engine.frontend.frontend import Job
from tandem.engine.frontend.results import Delta, SampleOutput


class ChatAnswer(Answer[ChatRequest]):
    """The answer to one conversation, as OpenAI's objects."""

    def __init__(self, model: NamedModel, body: ChatRequest, jobs: Sequence[Job]) -> None:
        super().__init__(model, body, jobs, "chatcmpl")

    @classmethod
    def prepare(cls, model: NamedModel, body: ChatRequest) -> "ChatAnswer":
        """See `Answer.prepare`."""
        model.check_name(body.model)
        body.check()
        sampling = body.sampling()
        prompt = model.reader.chat_prompt(
            body.conversation(), options=body.chat_template_kwargs or {}
        )
        return cls(model, body, [Job(prompt, sampling, body.num_samples, body.priority)])

    async def whole(self, deltas: Deltas) -> dict[str, Any]:
        """The answer once everything is generated."""
        (output,) = await self._collect(deltas)
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [self._choice(sample) for sample in output.outputs],
            "usage": self._usage.report(),
        }

    async def chunks(self, deltas: Deltas) -> AsyncGenerator[dict[str, Any], None]:
        """The answer as it comes."""
        async with aclosing(deltas):
            for index in range(self._body.num_samples):
                yield self._piece(index, {"role": "assistant", "content": ""})
            async for delta in deltas:
                self._usage.add(delta)
                if delta.text or delta.logprobs or delta.finish_reason:
                    content = {"content": delta.text} if delta.text else {}
                    yield self._piece(delta.sample_index, content, delta)
        if self._body.wants_usage:
            yield self._usage_chunk()

    def _choice(self, sample: SampleOutput) -> dict[str, Any]:
        return {
            "index": sample.index,
            "message": {"role": "assistant", "content": sample.text, "refusal": None},
            "logprobs": self._logprobs(sample),
            "finish_reason": sample.finish_reason,
            "stop_reason": sample.stop_reason,
        }

    def _piece(
        self, index: int, content: dict[str, Any], delta: Delta | None = None
    ) -> dict[str, Any]:
        choice = {
            "index": index,
            "delta": content,
            "logprobs": None if delta is None else self._logprobs(delta),
            "finish_reason": None if delta is None else delta.finish_reason,
        }
        if delta is not None and delta.finish_reason is not None:
            choice["stop_reason"] = delta.stop_reason
        return self._chunk([choice])

    def _chunk_head(self) -> dict[str, Any]:
        return {**self._head, "object": "chat.completion.chunk"}

    def _logprobs(self, news: SampleOutput | Delta) -> dict[str, Any] | None:
        if not self._body.logprobs:
            return None
        return chat_logprobs(self._reader.tokenizer, news.token_ids, news.logprobs)
