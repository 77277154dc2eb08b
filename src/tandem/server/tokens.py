"""POST /tokenize and /detokenize."""

import asyncio
from typing import Any

from fastapi import APIRouter, Request

from tandem.api.body import StrictBody
from tandem.api.chat_schema import ChatMessage
from tandem.api.errors import ApiError
from tandem.engine.frontend.prompts import Prompt
from tandem.server.context import ServerContext, context_of
from tandem.server.read_body import read_body

router = APIRouter()


class TokenizeRequest(StrictBody):
    """A text or a conversation."""

    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    add_special_tokens: bool = True
    add_generation_prompt: bool = True
    return_token_strs: bool = False


class DetokenizeRequest(StrictBody):
    """Token ids."""

    model: str | None = None
    tokens: list[int]


@router.post("/tokenize")
async def tokenize(request: Request) -> dict[str, Any]:
    """Token ids of a text or a conversation."""
    context = context_of(request)
    body = await read_body(request, TokenizeRequest)
    context.model.check_name(body.model)
    return await asyncio.to_thread(_tokenized, context, body)


def _tokenized(context: ServerContext, body: TokenizeRequest) -> dict[str, Any]:
    token_ids = _prompt(context, body).token_ids
    text_of = context.frontend.tokenizer.token_text
    return {
        "count": len(token_ids),
        "max_model_len": context.frontend.max_model_len,
        "tokens": token_ids,
        "token_strs": [text_of(i) for i in token_ids] if body.return_token_strs else None,
    }


@router.post("/detokenize")
async def detokenize(request: Request) -> dict[str, Any]:
    """Text of token ids, special tokens included; of none, an empty one."""
    context = context_of(request)
    body = await read_body(request, DetokenizeRequest)
    context.model.check_name(body.model)
    context.frontend.check_token_ids(body.tokens, "tokens")
    decode = context.frontend.tokenizer.decode
    text = await asyncio.to_thread(decode, body.tokens, skip_special_tokens=False)
    return {"prompt": text}


def _prompt(context: ServerContext, body: TokenizeRequest) -> Prompt:
    if (body.prompt is None) == (body.messages is None):
        raise ApiError(400, "give one of prompt and messages", param="prompt")
    if body.prompt is not None:
        return context.frontend.text_prompt(body.prompt, body.add_special_tokens)
    messages = [m.for_template(f"messages[{i}]") for i, m in enumerate(body.messages or [])]
    return context.frontend.chat_prompt(messages, body.add_generation_prompt)
