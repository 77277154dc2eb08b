"""Renders a conversation as the model's training data did.

The environment is that of transformers' `apply_chat_template`, which would cost seconds to import;
`tests/unit/frontend/test_tokenizer.py` holds the two together.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from tandem.spec.errors import ModelError, RequestError

Message = Mapping[str, Any]


class _Generation(jinja2.ext.Extension):
    """`{% generation %}` marks what the assistant wrote; it renders as its contents."""

    tags = {"generation"}  # noqa: RUF012 (jinja's own protocol)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """A compiled template.

    Args:
        source: Jinja text; runs in a sandbox.
        special_tokens: such as `bos_token`, by the name under which templates know them.

    Raises:
        ModelError: the template has a syntax error.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self._special_tokens = dict(special_tokens)
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise ModelError(
                f"the chat template is damaged: {error}; give another with --chat-template"
            ) from error

    def render(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool,
        options: Mapping[str, Any],
    ) -> str:
        """The conversation as text, ready to be tokenized without further special tokens.

        `options` are further variables, which cannot replace the template's ordinary ones.

        Raises:
            RequestError: the template refuses the conversation.
        """
        try:
            return self._template.render(
                {
                    **options,
                    **self._special_tokens,
                    "messages": [dict(message) for message in messages],
                    "tools": None,
                    "documents": None,
                    "add_generation_prompt": add_generation_prompt,
                }
            )
        except Exception as error:
            # A template is a program: it fails on messages it does not expect in any way it likes.
            raise RequestError(
                f"the model's chat template refuses these messages: {error}", param="messages"
            ) from error


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
