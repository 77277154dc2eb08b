from pathlib import Path

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models

import tandem
from tandem.engine.frontend.tokenizer import Tokenizer
from tandem.engine.frontend.tokenizer_files import load_tokenizer


@pytest.fixture(scope="session")
def demo_directory() -> Path:
    return Path(tandem.__file__).parent / "assets" / "demo-model"


@pytest.fixture(scope="session")
def tokenizer(demo_directory: Path) -> Tokenizer:
    loaded = load_tokenizer(demo_directory)
    assert loaded is not None
    return loaded


def sentencepiece_backend() -> Backend:
    """As Llama 2's: words, and single bytes for what is in no word."""
    vocab = {f"<0x{byte:02X}>": byte for byte in range(256)} | {"▁hello": 256, "<unk>": 257}
    backend = Backend(models.BPE(vocab, [], unk_token="<unk>", byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    return backend
