"""Reads the prompts of `tandem generate`."""

import json
import sys
from pathlib import Path

from tandem.spec.errors import RequestError

PromptInput = str | list[int]


def read_prompts(
    texts: list[str] | None, token_ids: str | None, file: Path | None
) -> list[PromptInput]:
    """The prompts given in exactly one of three ways.

    Args:
        texts: prompts as text.
        token_ids: JSON, `[[1,2],[3]]` or `[1,2]`.
        file: its whole text, without a last newline, is one prompt; `-` is standard input.

    Raises:
        RequestError: none or several were given, or one cannot be read.
    """
    ways = [way for way in (texts or None, token_ids, file) if way is not None]
    if len(ways) != 1:
        raise RequestError("give one of --prompt, --prompt-ids and --prompt-file", param="prompt")
    if texts:
        return list(texts)
    if token_ids is not None:
        return list(_parse_token_ids(token_ids))
    assert file is not None
    return [_read_file(file)]


def _parse_token_ids(text: str) -> list[list[int]]:
    example = "write for example '[[1,2],[3]]'"
    try:
        value = json.loads(text)
    except ValueError as error:
        raise RequestError(
            f"--prompt-ids is not JSON ({error}); {example}", param="prompt"
        ) from None
    prompts = [value] if isinstance(value, list) and value and _is_token_ids(value) else value
    if not isinstance(prompts, list) or not prompts or not all(map(_is_token_ids, prompts)):
        raise RequestError(f"--prompt-ids is not a list of token lists; {example}", param="prompt")
    return prompts


def _is_token_ids(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int for item in value)


def _read_file(path: Path) -> str:
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        raise RequestError(
            f"cannot read --prompt-file {path}: {error.strerror}; name a readable file",
            param="prompt",
        ) from None
    try:
        return data.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise RequestError(
            f"--prompt-file {path} is not UTF-8 (byte {error.start}); convert it, e.g. with iconv",
            param="prompt",
        ) from None
