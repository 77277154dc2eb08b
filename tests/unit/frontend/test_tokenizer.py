"""The tokenizer agrees with transformers', loaded directly or by it."""

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandem.engine.frontend import tokenizer_files
from tandem.engine.frontend.tokenizer import Tokenizer
from tandem.engine.frontend.tokenizer_files import load_tokenizer
from tandem.spec.errors import ConfigError, ContextLengthError, ModelError, RequestError

TEXTS = ["Hello world", " two  spaces\n\n", "naïve 🦜 日本語", "<|user|>\nhi<|end|>", "x = f(1, 2)"]
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "  Hi <there> & 'you' 🦜 "},
    {"role": "assistant", "content": "Yes?"},
    {"role": "user", "content": "Go on."},
]


@pytest.fixture(scope="module")
def reference(demo_directory: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(demo_directory)


@pytest.fixture
def copied(demo_directory: Path, tmp_path: Path) -> Path:
    for name in ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"):
        shutil.copy(demo_directory / name, tmp_path)
    return tmp_path


def change_settings(directory: Path, **changes: object) -> None:
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("text", TEXTS)
def test_token_ids_are_those_of_transformers(
    tokenizer: Tokenizer, reference: Any, text: str
) -> None:
    assert list(tokenizer.encode(text)) == reference(text).input_ids
    assert tokenizer.decode(tokenizer.encode(text)) == reference.decode(
        reference(text).input_ids, skip_special_tokens=True
    )


def test_chats_are_rendered_as_by_transformers(tokenizer: Tokenizer, reference: Any) -> None:
    ids = reference.apply_chat_template(CHAT, add_generation_prompt=True, return_dict=False)
    assert list(tokenizer.encode_chat(CHAT)) == ids


TEMPLATES = [
    "{% for m in messages %}\n  {{- m.content | tojson }}\n{% endfor %}{{ eos_token }}",
    "{% for m in messages %}{% if loop.index > 2 %}{% break %}{% endif %}{{ m.role }}{% endfor %}",
    "{% generation %}{{ messages[0]['content'] }}{% endgeneration %}{{ tools is none }}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
    "{{ ns.n }}{{ strftime_now('%Y')[:2] }}",
]


@pytest.mark.parametrize("template", TEMPLATES)
def test_template_features_work_as_in_transformers(
    copied: Path, reference: Any, template: str
) -> None:
    (copied / "chat_template.jinja").write_text(template)
    tokenizer = load_tokenizer(copied)
    assert tokenizer is not None
    rendered = reference.apply_chat_template(CHAT, chat_template=template, tokenize=False)
    assert tokenizer.decode(tokenizer.encode_chat(CHAT, False), False) == rendered


def test_settings_that_transformers_applies_are_applied(copied: Path) -> None:
    from transformers import AutoTokenizer

    (copied / "special_tokens_map.json").unlink()
    change_settings(copied, add_bos_token=False, eos_token="<|stop|>")
    tokenizer, reference = load_tokenizer(copied), AutoTokenizer.from_pretrained(copied)
    assert tokenizer is not None
    text = "Hello<|stop|>"
    assert list(tokenizer.encode(text)) == reference(text).input_ids
    assert tokenizer.decode(tokenizer.encode(text)) == "Hello"


def test_plain_tokenizers_do_not_need_transformers(
    demo_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer_files, "_load_by_transformers", None)
    assert load_tokenizer(demo_directory) is not None


def test_a_directory_without_a_tokenizer_has_none(tmp_path: Path) -> None:
    assert load_tokenizer(tmp_path) is None


def test_truncation_in_the_file_is_ignored(copied: Path) -> None:
    path = copied / "tokenizer.json"
    data = json.loads(path.read_text())
    limits = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    path.write_text(json.dumps(data | {"truncation": limits}))
    tokenizer = load_tokenizer(copied)
    assert tokenizer is not None
    assert len(tokenizer.encode("a b c d e f g h i j")) > 4


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_damaged_files_are_named(copied: Path, name: str) -> None:
    (copied / name).write_text('{"broken": ')
    with pytest.raises(ModelError, match=f"{name} is damaged"):
        load_tokenizer(copied)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer_config.json", b"[1]"),
        ("tokenizer_config.json", b"[" * 100_000),
        ("tokenizer_config.json", b'{"a": "\xe9"}'),
        ("tokenizer_config.json", b'{"chat_template": 5}'),
        ("tokenizer_config.json", b'{"chat_template": [{"name": "default"}]}'),
        ("tokenizer_config.json", b'{"added_tokens_decoder": [1]}'),
        ("tokenizer_config.json", b'{"additional_special_tokens": 5}'),
        ("chat_template.json", b'{"chat_template": {"a": 1}}'),
        ("chat_template.jinja", b"\xff\xfe{{"),
    ],
)
def test_files_that_say_something_else_are_named(copied: Path, name: str, content: bytes) -> None:
    if name != "tokenizer_config.json":
        change_settings(copied, chat_template=None)
    (copied / name).write_bytes(content)
    with pytest.raises(ModelError, match=f"{name} is damaged") as error:
        load_tokenizer(copied)
    assert "\n" not in error.value.message


@pytest.mark.parametrize("entry", [5, {"name": "other", "template": "x"}])
def test_templates_of_which_none_is_the_usual_one_are_none(copied: Path, entry: object) -> None:
    change_settings(copied, chat_template=[entry])
    tokenizer = load_tokenizer(copied)
    assert tokenizer is not None
    with pytest.raises(RequestError, match="no chat template"):
        tokenizer.encode_chat(CHAT)


def test_a_template_of_a_processor_is_found(copied: Path) -> None:
    """As Gemma 3's repositories have it beside the tokenizer's."""
    change_settings(copied, chat_template=None)
    template = json.dumps({"chat_template": "{{ messages[0].content }}?"})
    (copied / "chat_template.json").write_text(template)
    tokenizer = load_tokenizer(copied)
    assert tokenizer is not None
    assert tokenizer.decode(tokenizer.encode_chat(CHAT)).endswith("?")


def test_a_tokenizer_that_nobody_can_load_is_a_model_error(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_tokenizer(tmp_path)


def test_a_chat_template_can_be_given_as_a_file(copied: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.jinja"
    path.write_text("{{ messages[-1].content }}!")
    tokenizer = load_tokenizer(copied, path)
    assert tokenizer is not None
    assert tokenizer.decode(tokenizer.encode_chat(CHAT)) == "Go on.!"
    with pytest.raises(ConfigError, match="cannot be read"):
        load_tokenizer(copied, tmp_path / "absent")
    path.write_text("{% if %}")
    with pytest.raises(ModelError, match="chat template is damaged"):
        load_tokenizer(copied, path)


def test_a_template_can_refuse_a_conversation(copied: Path) -> None:
    (copied / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    tokenizer = load_tokenizer(copied)
    assert tokenizer is not None
    with pytest.raises(RequestError, match="roles must alternate"):
        tokenizer.encode_chat(CHAT)


def test_templates_run_in_a_sandbox(copied: Path) -> None:
    (copied / "chat_template.jinja").write_text("{{ ''.__class__.__mro__ }}")
    tokenizer = load_tokenizer(copied)
    assert tokenizer is not None
    with pytest.raises(RequestError, match="unsafe"):
        tokenizer.encode_chat(CHAT)


@given(text=st.text(st.characters(categories=["Cs"]), min_size=1))
def test_unpaired_surrogates_are_refused(tokenizer: Tokenizer, text: str) -> None:
    with pytest.raises(RequestError, match="not valid Unicode") as caught:
        tokenizer.encode("abc" + text)
    caught.value.message.encode("utf-8")


def test_a_long_text_leaves_other_threads_running(tokenizer: Tokenizer) -> None:
    """Tokenizing must not hold the interpreter lock: a server would not even answer /health."""
    text = "The quick brown fox jumps over the lazy dog. " * 20_000
    turns = 0
    with ThreadPoolExecutor(1) as pool:
        encoding = pool.submit(tokenizer.encode, text)
        while not encoding.done():
            threading.Event().wait(0.001)
            turns += 1
        decoding = pool.submit(tokenizer.decode, encoding.result())
        assert text in decoding.result()
    assert turns > 20  # of hundreds; one or two while the lock is held


def test_text_that_cannot_fit_is_not_tokenized(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = tokenizer.max_token_bytes
    fits = "é" * (10 * longest // 2)
    assert len(tokenizer.encode(fits, max_tokens=10)) > 10  # it had a chance, so it was counted
    monkeypatch.setattr(tokenizer, "_backend", None)
    with pytest.raises(ContextLengthError, match=f"at most {10 * longest}; shorten it"):
        tokenizer.encode(fits + "é" * longest, max_tokens=10)
    with pytest.raises(ContextLengthError):
        tokenizer.encode_chat([{"role": "user", "content": fits * 2}], max_tokens=10)


def test_no_token_stands_for_more_bytes_than_the_bound(tokenizer: Tokenizer) -> None:
    texts = [tokenizer.token_text(token_id) for token_id in range(tokenizer.vocab_size)]
    assert max(len(text.encode()) for text in texts) <= tokenizer.max_token_bytes


def test_composition_cannot_hide_a_text_that_fits(copied: Path) -> None:
    """Normalization may turn several characters into one before they are counted as tokens."""
    path = copied / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"normalizer": {"type": "NFC"}}))
    tokenizer = load_tokenizer(copied)
    assert tokenizer is not None
    decomposed = "\u1112\u1161\u11ab"  # three letters of three bytes make one syllable of three
    assert tokenizer.encode(decomposed) == tokenizer.encode("\ud55c")
    tokenizer.encode(decomposed * tokenizer.max_token_bytes, max_tokens=9)
