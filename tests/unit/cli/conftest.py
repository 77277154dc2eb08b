"""Run the command line in this process, over an engine without a model."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.fakes.core import FakeCore, saying
from tests.support.answers import Answers

import tandem
from tandem import compose
from tandem.cli.main import main
from tandem.engine.frontend.tokenizer import Tokenizer
from tandem.engine.frontend.tokenizer_files import load_tokenizer
from tandem.spec.config import EngineConfig
from tandem.spec.progress import Progress

SAID = "The quick brown fox jumps over the lazy dog. 🦜 The end."


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    status: int
    out: str
    err: str


@dataclass
class Commands:
    """Runs commands; remembers the engine's configuration and requests."""

    run: Callable[..., Ran]
    core: FakeCore
    configs: list[EngineConfig]


@pytest.fixture(scope="session")
def tokenizer() -> Tokenizer:
    loaded = load_tokenizer(Path(tandem.__file__).parent / "assets" / "demo-model")
    assert loaded is not None
    return loaded


@pytest.fixture(scope="session")
def answers() -> Answers:
    return Answers()


@pytest.fixture
def commands(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tokenizer: Tokenizer,
    answers: Answers,
) -> Commands:
    core = FakeCore(token_at=saying(tokenizer.encode(SAID, add_special_tokens=False)))
    configs: list[EngineConfig] = []

    def build_engine(config: EngineConfig, progress: Progress) -> FakeCore:
        configs.append(config)
        progress("loading weights", 1, 1)
        return core

    def run(*args: str) -> Ran:
        status = main(list(args))
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    monkeypatch.setattr(compose, "build_engine", build_engine)
    monkeypatch.setattr("tandem.planner.answer.answer", answers.online)
    monkeypatch.setattr("tandem.planner.offline.answer.offline_answer", answers.offline)
    return Commands(run, core, configs)
