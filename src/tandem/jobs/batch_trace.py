"""A batch job's input as a trace: lengths of its requests, for a planner."""

from pathlib import Path

from tandem.api.errors import ApiError
from tandem.engine.frontend.prompts import PromptReader
from tandem.engine.frontend.tokenizer_files import load_tokenizer
from tandem.jobs.lengths import LengthReader, LengthSum
from tandem.jobs.lines import read_lines
from tandem.jobs.request_line import LineError
from tandem.jobs.settings import MAX_LINE_BYTES
from tandem.models.config import read_model_spec
from tandem.models.resolve import resolve_model
from tandem.spec.errors import ConfigError, ModelError, RequestError
from tandem.spec.trace_fields import trace_error
from tandem.spec.workload import Workload


def read_batch_trace(path: Path, model: str) -> Workload:
    """The requests of a file for `tandem batch`, with prompts in tokens of the model's tokenizer.
    They may name any model, and all of them must be such as can run.

    Raises:
        ConfigError: the model's files are not here, or a line is no request (names it).
    """
    reader = LengthReader(_prompt_reader(path, model), None)
    total = LengthSum()
    with path.open("rb") as file:
        for line in read_lines(file, MAX_LINE_BYTES):
            try:
                total.add(reader.read(line))
            except (LineError, ApiError, RequestError) as error:
                raise trace_error(path, f"line {line.start.number}: {error.message}") from None
    return total.lengths().workload(path.name)


def _prompt_reader(path: Path, model: str) -> PromptReader:
    try:
        directory = resolve_model(model)
        spec = read_model_spec(directory)
        tokenizer = load_tokenizer(directory)
    except ModelError as error:
        raise ConfigError(
            f"trace {path}: its prompts are counted by the model's own tokenizer: {error.message}; "
            "or say how long requests are, by --prompt, --generate and --requests",
            param="trace",
        ) from None
    return PromptReader(tokenizer, spec.vocab_size, spec.max_positions)
