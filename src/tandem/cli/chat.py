"""`tandem chat`."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem.cli.arguments import ModelArgument
from tandem.cli.engine_flags import EngineOptions, fill_engine_for_one
from tandem.cli.flags import env_twin, fill
from tandem.cli.sampling_flags import DEFAULT_MAX_TOKENS, SAMPLING_FLAGS, SamplingOptions, notes_on
from tandem.cli.terminal import load_progress, note, tell_load, tell_notes, write
from tandem.spec.errors import EngineDeadError, TandemError
from tandem.spec.sampling import SamplingParams

if TYPE_CHECKING:
    from tandem.engine.frontend.prompts import PromptReader

_HELP = "/reset forgets the conversation, /quit or Ctrl-D ends, Ctrl-C stops an answer."


@fill("sampling", SamplingParams, SAMPLING_FLAGS)
@fill_engine_for_one()
def chat(
    engine: EngineOptions,
    sampling: SamplingOptions,
    model: ModelArgument = "demo",
    message: Annotated[
        str | None, typer.Option(help="Ask this, print the answer, and end.", metavar="TEXT")
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(help="What the model is told first.", envvar=env_twin("system")),
    ] = None,
    chat_template: Annotated[
        Path | None,
        typer.Option(
            help="Jinja file to use for the model's own.", envvar=env_twin("chat_template")
        ),
    ] = None,
) -> None:
    """Talk with a model."""
    params = sampling()
    config = engine(model)
    from tandem.llm import LLM

    def check(reader: "PromptReader") -> None:
        reader.check_sampling(params)
        reader.chat_prompt([*_start(system), {"role": "user", "content": message or "Hello"}])

    tell_notes(notes_on(params))
    with load_progress() as progress:
        llm = LLM.load(config, progress=progress, chat_template=chat_template, check=check)
    with llm:
        tell_load(llm.description)
        conversation = Conversation(llm, params, system)
        if message is not None:
            conversation.ask(message)
        else:
            note(_HELP)
            _converse(conversation)


class Conversation:
    """What was said so far, and the model that answers.

    Args:
        llm: a `tandem.LLM`.
        params: how answers are sampled.
        system: what the model is told first.
    """

    def __init__(self, llm: Any, params: SamplingParams, system: str | None) -> None:
        self._llm = llm
        self._params = params
        self._start = _start(system)
        self.messages = list(self._start)

    def reset(self) -> None:
        """Forget everything but the system message."""
        self.messages = list(self._start)

    def ask(self, text: str) -> None:
        """Print the answer as it comes, and remember both.

        Raises:
            TandemError: the conversation is too long or the engine died; `text` is forgotten.
        """
        asked = [*self.messages, {"role": "user", "content": text}]
        prompt = self._llm.frontend.chat_prompt(asked)
        params = self._llm.frontend.with_limit(self._params, prompt, DEFAULT_MAX_TOKENS)
        pieces: list[str] = []
        try:
            for delta in self._llm.stream_chat(asked, params):
                pieces.append(delta.text)
                write(delta.text)
        except KeyboardInterrupt:
            write(" [stopped]")
        write("\n")
        self.messages = [*asked, {"role": "assistant", "content": "".join(pieces)}]


def _start(system: str | None) -> list[dict[str, str]]:
    return [] if system is None else [{"role": "system", "content": system}]


def _converse(conversation: Conversation) -> None:
    if sys.stdin.isatty():
        import readline  # noqa: F401 (line editing and history for input)
    prompt = "> " if sys.stdin.isatty() else ""
    while True:
        try:
            text = input(prompt).strip()
        except (EOFError, KeyboardInterrupt):
            note("")
            return
        match text:
            case "":
                continue
            case "/quit":
                return
            case "/reset":
                conversation.reset()
            case _ if text.startswith("/"):
                note(_HELP)
            case _:
                _answer(conversation, text)


def _answer(conversation: Conversation, text: str) -> None:
    try:
        conversation.ask(text)
    except EngineDeadError:
        raise
    except TandemError as error:
        print(f"tandem: error: {error.message}", file=sys.stderr)
