"""The page on serving names every field that the server takes."""

import re

from tests.docs.pages import ROOT

from tandem.api.chat_schema import ChatRequest
from tandem.api.completion_schema import CompletionRequest
from tandem.api.fields import StreamOptions

PAGE = (ROOT / "docs" / "serving.md").read_text("utf-8")
ALWAYS_REFUSED = {"functions"}


def test_every_field_is_named() -> None:
    schemas = (CompletionRequest, ChatRequest, StreamOptions)
    fields = {name for schema in schemas for name in schema.model_fields} - ALWAYS_REFUSED
    named = set(re.findall(r"\w+", " ".join(re.findall(r"`[^`\n]+`", PAGE))))
    assert fields - named == set()
