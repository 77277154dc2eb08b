"""GET /v1/models."""

from typing import Any

from fastapi import APIRouter, Request

from tandem.server.context import ServerContext, context_of

router = APIRouter()


@router.api_route("/v1/models", methods=["GET", "HEAD"])
async def list_models(request: Request) -> dict[str, Any]:
    """All names of the model."""
    context = context_of(request)
    names = context.model.names
    return {"object": "list", "data": [_card(context, name) for name in names]}


@router.api_route("/v1/models/{name:path}", methods=["GET", "HEAD"])
async def show_model(request: Request, name: str) -> dict[str, Any]:
    """One of them."""
    context = context_of(request)
    context.model.check_name(name)
    return _card(context, name)


def _card(context: ServerContext, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": context.started_at,
        "owned_by": "tandem",
        "root": context.service.model_name,
        "max_model_len": context.frontend.max_model_len,
    }
