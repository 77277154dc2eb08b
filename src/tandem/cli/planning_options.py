"""Options of commands that plan."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

ModelName = Annotated[
    str,
    typer.Argument(help="Model by name (llama-3.1-8b), hub id or directory.", metavar="MODEL"),
]
PromptLengths = Annotated[
    str, typer.Option(help="Prompt tokens: 512, 400-600, exp:300, lognormal:300,200.")
]
RequestCount = Annotated[
    int, typer.Option(help="Number of requests.", metavar="COUNT", min=1, max=1_000_000)
]
Rate = Annotated[
    float | None,
    typer.Option(help="Requests per second, a Poisson process; else all come at once."),
]
WorkloadName = Annotated[
    str | None,
    typer.Option(help="Lengths of a paper's requests: azure-code, osc, kvpr, ...", metavar="NAME"),
]
RequestTrace = Annotated[
    Path | None,
    typer.Option(
        help="Requests of an Azure LLM trace (CSV), ShareGPT-like JSON, or a file for batch.",
        metavar="FILE",
    ),
]
Seed = Annotated[int, typer.Option(help="Of drawn lengths and arrivals.")]
DiskRate = Annotated[
    str | None,
    typer.Option(
        help="Read rate of the disk that weights are on, e.g. 3.5GB/s; none: no disk is read.",
        metavar="RATE",
    ),
]
PolicyName = Annotated[str, typer.Option(help="Plan under this policy only.")]


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """Hardware, described or measured."""

    accelerator: Annotated[
        str | None,
        typer.Option(
            help="Accelerator: a10g, rtx4090, ..., a TOML file, measured, or none; by default, "
            "measured if this machine was.",
            metavar="NAME",
        ),
    ] = None
    host: Annotated[
        str | None,
        typer.Option(
            help="Host: g5.4xlarge, desktop-ddr5, ..., a TOML file, or measured.", metavar="NAME"
        ),
    ] = None
    profile: Annotated[
        Path | None,
        typer.Option(help="What `tandem profile --output` wrote.", metavar="FILE"),
    ] = None
    disk: DiskRate = None


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """Requests: drawn, or of a trace."""

    prompt: PromptLengths = "512"
    generate: Annotated[str, typer.Option(help="Output tokens, in the same forms.")] = "128"
    requests: RequestCount = 1000
    workload: WorkloadName = None
    rate: Rate = None
    trace: RequestTrace = None
    seed: Seed = 0


@dataclass(frozen=True, slots=True)
class ServedOptions:
    """Requests that are served in one run, or in several where an option is a list."""

    prompt: PromptLengths = "512"
    generate: Annotated[
        str, typer.Option(help="Output tokens, in the same forms; or 50,100,...: a run each.")
    ] = "128"
    requests: RequestCount = 200
    workload: WorkloadName = None
    rate: Rate = None
    rates: Annotated[
        str | None,
        typer.Option(help="Requests per second, 0.5,1,2: a run each.", metavar="LIST"),
    ] = None
    host_cores: Annotated[
        str | None,
        typer.Option(help="Cores of the host, 4,8,16: a run each.", metavar="LIST"),
    ] = None
    trace: RequestTrace = None
    seed: Seed = 0

    def one_run(self, rate: float | None, generate: str) -> RequestOptions:
        """Those of one run."""
        return RequestOptions(
            self.prompt, generate, self.requests, self.workload, rate, self.trace, self.seed
        )


TpotBound = Annotated[
    str | None,
    typer.Option(help="Most time per output token of any request, e.g. 100ms.", metavar="TIME"),
]


@dataclass(frozen=True, slots=True)
class GoalOptions:
    """What a plan is to be best at."""

    objective: Annotated[str, typer.Option(help="throughput or latency (one request).")] = (
        "throughput"
    )
    tpot_bound: TpotBound = None


TtftBound = Annotated[
    str | None,
    typer.Option(
        help="From arrival to a first token: prompts that can be in time are read first.",
        metavar="TIME",
    ),
]


@dataclass(frozen=True, slots=True)
class MemoryOptions:
    """What an engine may use of each memory, and the types that it holds there."""

    gpu_memory: Annotated[
        str,
        typer.Option(
            help="Accelerator memory to use; auto: all but 5%, at most 1 GiB.", metavar="SIZE"
        ),
    ] = "auto"
    cpu_memory: Annotated[
        str,
        typer.Option(help="Host memory to use; auto: all but about 3 GiB.", metavar="SIZE"),
    ] = "auto"
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto"
    kv_cache_dtype: Annotated[
        str, typer.Option(help="auto, float32, bfloat16, float16, fp8, int8 or int4.")
    ] = "auto"
    quantization: Annotated[
        str,
        typer.Option(help="Of the layers' weights: none, int8 or int4, with :GROUP or without."),
    ] = "auto"


@dataclass(frozen=True, slots=True)
class StepOptions:
    """Sizes of an engine's steps and blocks."""

    max_num_batched_tokens: Annotated[
        int | None,
        typer.Option(help="Most tokens computed in one step; by default the plan chooses.", min=1),
    ] = None
    block_size: Annotated[int, typer.Option(help="Tokens per KV block.", min=16, max=256)] = 64
