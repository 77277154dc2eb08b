"""Loads a tokenizer from a model directory."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Backend

from tandem.engine.frontend.chat_template import ChatTemplate
from tandem.engine.frontend.tokenizer import Tokenizer
from tandem.spec.errors import ConfigError, ModelError

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model")
_SPECIAL_TOKEN_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token")

# Classes of transformers that take `tokenizer.json` as it is.
_PLAIN_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
# Settings by which transformers changes it after loading.
_CHANGING_SETTINGS = ("add_bos_token", "add_eos_token", "add_prefix_space", "split_special_tokens")
# What is looked into.
_KINDS = {
    "chat_template": str | list,
    "added_tokens_decoder": dict,
    "additional_special_tokens": list | dict,
}


def load_tokenizer(directory: Path, chat_template_file: Path | None = None) -> Tokenizer | None:
    """The tokenizer in a model directory; None if it holds none.

    `tokenizer.json` is read directly where transformers would use it unchanged; otherwise
    transformers loads it, which costs a few seconds.

    Raises:
        ModelError: the tokenizer is damaged or of an unsupported kind.
        ConfigError: `chat_template_file` cannot be read.
    """
    settings = _read_settings(directory)
    template = _chat_template(directory, settings, chat_template_file)
    if not any((directory / name).is_file() for name in _TOKENIZER_FILES):
        return None
    backend = _load_plain(directory, settings) or _load_by_transformers(directory)
    backend.no_truncation()
    backend.no_padding()
    return Tokenizer(backend, template)


def _load_plain(directory: Path, settings: Mapping[str, Any]) -> Backend | None:
    path = directory / "tokenizer.json"
    changed = any(settings.get(name) is not None for name in _CHANGING_SETTINGS)
    if not path.is_file() or changed or settings.get("tokenizer_class") not in _PLAIN_CLASSES:
        return None
    try:
        backend = Backend.from_file(str(path))
    except Exception as error:
        raise _damaged(path, error) from error
    # transformers adds special tokens that only the settings name.
    named = [*_special_tokens(settings).values(), *_additional_tokens(settings)]
    return backend if all(backend.token_to_id(token) is not None for token in named) else None


def _load_by_transformers(directory: Path) -> Backend:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            directory, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(
            f"the tokenizer in {directory} cannot be loaded: {reason}; fetch the model again"
        ) from error
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, Backend):
        raise ModelError(
            f"the tokenizer in {directory} is of a kind ({type(tokenizer).__name__}) that "
            "cannot be used piece by piece; convert it to tokenizer.json"
        )
    return backend


def _read_settings(directory: Path) -> dict[str, Any]:
    settings = _read_object(directory / "tokenizer_config.json")
    if "added_tokens_decoder" in settings:
        return settings
    # Older models keep their special tokens in a file of their own, which then has the last word.
    return settings | _read_object(directory / "special_tokens_map.json")


def _read_object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from error
    if not isinstance(found, dict):
        raise _damaged(path, "it holds no JSON object")
    for name, kind in _KINDS.items():
        if not isinstance(found.get(name), kind | None):
            raise _damaged(path, f"'{name}' is {json.dumps(found[name])[:80]}")
    return found


def _damaged(path: Path, reason: object) -> ModelError:
    return ModelError(f"{path} is damaged: {reason}; fetch the model again")


def _chat_template(
    directory: Path, settings: Mapping[str, Any], override: Path | None
) -> ChatTemplate | None:
    source = _template_source(directory, settings) if override is None else _read(override)
    return None if source is None else ChatTemplate(source, _special_tokens(settings))


def _template_source(directory: Path, settings: Mapping[str, Any]) -> str | None:
    """Of the places where it may be, the newest counts."""
    path = directory / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise _damaged(path, error) from error
    template = settings.get("chat_template")
    if template is None:  # where a model that also reads images keeps it
        template = _read_object(directory / "chat_template.json").get("chat_template")
    if not isinstance(template, list):
        return template
    for entry in template:  # several, by name
        if isinstance(entry, dict) and entry.get("name") == "default":
            named = entry.get("template")
            if not isinstance(named, str):
                reason = f"the chat template 'default' is {json.dumps(named)[:80]}"
                raise _damaged(directory / "tokenizer_config.json", reason)
            return named
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the chat template {path} cannot be read ({error}); give a UTF-8 text file",
            param="chat_template",
        ) from error


def _special_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    tokens = {name: _content(settings.get(name)) for name in _SPECIAL_TOKEN_NAMES}
    return {name: token for name, token in tokens.items() if token is not None}


def _additional_tokens(settings: Mapping[str, Any]) -> list[str]:
    entries = [
        *(settings.get("additional_special_tokens") or []),
        *(settings.get("added_tokens_decoder") or {}).values(),
    ]
    return [token for token in map(_content, entries) if token is not None]


def _content(entry: object) -> str | None:
    """A token given as text or as an object with `content`."""
    content = entry.get("content") if isinstance(entry, dict) else entry
    return content if isinstance(content, str) else None
