"""What can be chosen about a job, as opposed to the engine."""

from dataclasses import dataclass
from pathlib import Path

from tandem.spec.config import EngineConfig

MAX_LINE_BYTES = 32 << 20
"""Of a line, where nobody says otherwise."""

# Fields of the engine's configuration on which answers depend; a job cannot be resumed with others.
ANSWER_OPTIONS = (
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "cpu_kv_dtype",
    "load_format",
    "max_model_len",
    "seed",
)


@dataclass(frozen=True, slots=True)
class JobSettings:
    """One job's settings.

    Attributes:
        input_file, output_file: requests and results, in the form of OpenAI's Batch API.
        served_model_names: names by which lines may ask for the model; the first is in answers.
        restart: drop the output and the journal, and begin.
        chat_template: Jinja file to use for the model's own.
        max_line_bytes: longer lines are refused.
        isolate_engine: run the engine in a process of its own.
    """

    input_file: Path
    output_file: Path
    served_model_names: tuple[str, ...]
    restart: bool = False
    chat_template: Path | None = None
    max_line_bytes: int = MAX_LINE_BYTES
    isolate_engine: bool = True


def answer_options(config: EngineConfig, settings: JobSettings) -> dict[str, str]:
    """The options on which answers depend, as flags call them."""
    options = {f"--{name.replace('_', '-')}": str(getattr(config, name)) for name in ANSWER_OPTIONS}
    return {
        **options,
        "--served-model-name": " ".join(settings.served_model_names),
        "--max-line-size": str(settings.max_line_bytes),
    }
