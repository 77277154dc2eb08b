"""Turns names and flags into objects. The only place that knows which class does what."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tandem.engine.clients.client import EngineClient
from tandem.engine.clients.driver import Core
from tandem.engine.clients.inprocess import InProcessClient
from tandem.engine.clients.process_client import ProcessClient
from tandem.engine.describe import describe_load
from tandem.engine.frontend.frontend import Frontend
from tandem.engine.frontend.prompts import PromptReader
from tandem.engine.frontend.tokenizer_files import load_tokenizer
from tandem.models.config import read_model_spec
from tandem.models.resolve import resolve_model
from tandem.plan.plan_file import read_plan
from tandem.spec.config import EngineConfig
from tandem.spec.progress import Progress, no_progress

ENGINE_FACTORY = "tandem.compose:build_engine"
"""Where an engine process finds `build_engine`."""

OpenClient = Callable[[EngineConfig, Progress], EngineClient]


@dataclass(frozen=True, slots=True)
class Service:
    """A loaded engine with its text side.

    Attributes:
        frontend: takes prompts; its `client` is the engine and is closed by `close`.
        model_name: what the user called the model.
        description: what was loaded where, and what was decided, one line each.
    """

    frontend: Frontend
    model_name: str
    description: tuple[str, ...] = ()

    def close(self) -> None:
        """Stop the engine; unfinished requests fail."""
        self.frontend.client.close()


def build_engine(config: EngineConfig, progress: Progress = no_progress) -> Core:
    """Load the model and build the engine core around it.

    Raises:
        TandemError: the model cannot be loaded, or does not fit, or memory ran out all the same.
    """
    from tandem.engine.building.build import build_engine_core
    from tandem.engine.exhausted import exhausted_while_loading

    planned = None if config.plan is None else read_plan(Path(config.plan))
    try:
        if planned is not None and planned.is_for_blocks:
            from tandem.engine.building.blocks import build_block_core

            return build_block_core(config, planned, progress)
        return build_engine_core(config, progress)
    except Exception as error:
        exhausted = exhausted_while_loading(error)
        if exhausted is None:
            raise
        raise exhausted from error


def open_in_process(config: EngineConfig, progress: Progress = no_progress) -> EngineClient:
    """An engine on a thread of this process."""
    return InProcessClient(lambda report: build_engine(config, report), progress)


def open_in_child(config: EngineConfig, progress: Progress = no_progress) -> EngineClient:
    """An engine in a process of its own, whose end leaves this one alive."""
    return ProcessClient(ENGINE_FACTORY, config, progress)


def open_service(
    config: EngineConfig,
    open_client: OpenClient = open_in_process,
    progress: Progress = no_progress,
    chat_template: Path | None = None,
    check: Callable[[PromptReader], object] = lambda reader: None,
) -> Service:
    """Load tokenizer and engine. What is cheap to check is checked before the weights are read.

    Args:
        check: called before the weights are read; what it raises ends the load.

    Raises:
        TandemError: the model, its tokenizer or its chat template cannot be loaded.
    """
    directory = resolve_model(config.model)
    spec = read_model_spec(directory)
    tokenizer = load_tokenizer(directory, chat_template)
    check(PromptReader(tokenizer, spec.vocab_size, config.max_model_len or spec.max_positions))
    client = open_client(config, progress)
    try:
        stats = client.stats()
    except BaseException:
        client.close()
        raise
    return Service(
        frontend=Frontend(
            client,
            tokenizer,
            spec.vocab_size,
            stats["max_model_len"],
            config.max_num_queued_reqs,
        ),
        model_name=config.model,
        description=tuple(describe_load(config.model, stats)),
    )
