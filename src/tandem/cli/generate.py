"""`tandem generate`."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tandem.cli.arguments import ModelArgument
from tandem.cli.engine_flags import EngineOptions, fill_engine_for_known
from tandem.cli.flags import env_twin, fill
from tandem.cli.prompts import read_prompts
from tandem.cli.sampling_flags import DEFAULT_MAX_TOKENS, SAMPLING_FLAGS, SamplingOptions, notes_on
from tandem.cli.terminal import load_progress, note, tell_load, tell_notes, write
from tandem.spec.errors import ConfigError
from tandem.spec.sampling import SamplingParams

if TYPE_CHECKING:
    from tandem.engine.frontend.prompts import Prompt, PromptReader

TokenIds = tuple[int, ...]
_MOST_AT_ONCE = 64


@fill("sampling", SamplingParams, SAMPLING_FLAGS)
@fill_engine_for_known()
def generate(
    engine: EngineOptions,
    sampling: SamplingOptions,
    model: ModelArgument = "demo",
    prompt: Annotated[
        list[str] | None, typer.Option(help="A prompt; repeatable.", metavar="TEXT")
    ] = None,
    prompt_ids: Annotated[
        str | None, typer.Option(help="Prompts as token ids: '[[1,2],[3]]'.", metavar="JSON")
    ] = None,
    prompt_file: Annotated[
        Path | None, typer.Option(help="A file that is one prompt; - is standard input.")
    ] = None,
    n: Annotated[int, typer.Option(help="Samples per prompt.", envvar=env_twin("n"))] = 1,
    logprobs: Annotated[
        int | None,
        typer.Option(
            help="Log-probabilities of this many alternatives; with --json.",
            envvar=env_twin("logprobs"),
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object when all is done.")
    ] = False,
) -> None:
    """Continue prompts. One prompt is printed as it comes."""
    if logprobs is not None and not as_json:
        raise ConfigError("--logprobs has no place in plain text; add --json", param="logprobs")
    params = replace(sampling(), logprobs=logprobs)
    given = read_prompts(prompt, prompt_ids, prompt_file)
    config = engine(model, {"max_num_seqs": min(max(1, n * len(given)), _MOST_AT_ONCE)})
    from tandem.engine.frontend.prompts import check_samples
    from tandem.llm import LLM

    prompts: list[Prompt] = []

    def check(reader: "PromptReader") -> None:
        check_samples(n)
        reader.check_sampling(params)
        prompts.extend(map(reader.prompt, given))
        if not (as_json or reader.has_tokenizer):
            raise ConfigError(
                "this model has no tokenizer, so there is no text to print; add --json",
                param="json",
            )

    tell_notes(notes_on(params, n))
    with load_progress() as progress:
        llm = LLM.load(config, progress=progress, check=check)
    with llm:
        tell_load(llm.description)
        each = [llm.frontend.with_limit(params, prompt, DEFAULT_MAX_TOKENS) for prompt in prompts]
        token_ids = [prompt.token_ids for prompt in prompts]
        if as_json:
            _print_json(llm, token_ids, each, n)
        elif len(prompts) == 1 and n == 1:
            _print_stream(llm, token_ids[0], each[0])
        else:
            _print_all(llm, token_ids, each, n)


def _print_json(llm: Any, prompts: list[TokenIds], params: list[SamplingParams], n: int) -> None:
    results = llm.generate(prompts, params, n)
    outputs = [
        {
            "prompt_token_ids": result.prompt_token_ids,
            "token_ids": sample.token_ids,
            "text": sample.text,
            "finish_reason": sample.finish_reason,
            **({} if asked.logprobs is None else {"logprobs": _logprobs(sample)}),
        }
        for result, asked in zip(results, params, strict=True)
        for sample in result.outputs
    ]
    print(json.dumps({"outputs": outputs, "stats": llm.stats()}))


def _logprobs(sample: Any) -> list[dict[str, Any]]:
    return [
        {
            "token_id": token_id,
            "logprob": entry.logprob,
            "top_token_ids": entry.top_token_ids,
            "top_logprobs": entry.top_logprobs,
        }
        for token_id, entry in zip(sample.token_ids, sample.logprobs, strict=True)
    ]


def _print_stream(llm: Any, prompt: TokenIds, params: SamplingParams) -> None:
    num_tokens, first_at, reason = 0, None, None
    for delta in llm.stream(prompt, params):
        first_at = first_at or time.perf_counter()
        num_tokens += len(delta.token_ids)
        reason = delta.finish_reason
        write(delta.text)
    write("\n")
    elapsed_s = time.perf_counter() - (first_at or 0)
    rate = f", {(num_tokens - 1) / elapsed_s:.1f} tokens/s" if num_tokens > 1 else ""
    note(f"[{num_tokens} tokens{rate}, ended by {reason}]")


def _print_all(llm: Any, prompts: list[TokenIds], params: list[SamplingParams], n: int) -> None:
    for number, result in enumerate(llm.generate(prompts, params, n), start=1):
        for sample in result.outputs:
            which = f"prompt {number}" + (f", sample {sample.index + 1}" if n > 1 else "")
            write(f"=== {which} ({sample.finish_reason})\n{sample.text}\n")
