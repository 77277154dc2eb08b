from pathlib import Path

import pytest

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
