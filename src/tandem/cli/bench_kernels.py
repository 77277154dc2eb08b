"""`tandem bench` of single operations on the host, and what few bits cost."""

from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.bench_records import JsonOption, finish, report, start


def kernels(
    json_path: JsonOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Under a minute: one shape in float16.")
    ] = False,
) -> None:
    """Decode attention on the CPU beside its limit and torch."""
    machine = start(json_path)
    from tandem.bench import kernels as suite

    config = suite.quick() if quick else suite.full()
    finish(suite.SUITE, machine, suite.run_kernels(config, report), json_path)


def prefill(
    json_path: JsonOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Under a minute: one shape in bfloat16.")
    ] = False,
) -> None:
    """Prefill attention on the CPU beside torch's best."""
    machine = start(json_path)
    from tandem.bench import prefill as suite

    config = suite.quick() if quick else suite.full()
    finish(suite.SUITE, machine, suite.run_prefill(config, report), json_path)


def copies(
    json_path: JsonOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few seconds.")] = False,
) -> None:
    """Copies of KV blocks in host memory.

    Between pools, beside torch and reading.
    """
    machine = start(json_path)
    from tandem.bench import copies as suite

    config = suite.quick() if quick else suite.full()
    finish(suite.SUITE, machine, suite.run_copies(config, report), json_path)


def linear(
    json_path: JsonOption = None,
    only: Annotated[
        str, typer.Option(help="Measure cases whose names contain this.", metavar="TEXT")
    ] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="Under a minute: one shape, float16 and int8.")
    ] = False,
) -> None:
    """Linear maps on the CPU beside their limit and torch."""
    machine = start(json_path)
    from tandem.bench import linear as suite

    config = suite.quick(only) if quick else suite.full(only)
    finish(suite.SUITE, machine, suite.run_linear(config, report), json_path)


def pool(
    json_path: JsonOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="A second.")] = False,
) -> None:
    """How long work for the CPU's threads waits.

    Until it begins, and until its end is known.
    """
    machine = start(json_path)
    from tandem.bench import pool as suite

    config = suite.quick() if quick else suite.full()
    finish(suite.SUITE, machine, suite.run_pool(config, report), json_path)


def perplexity(
    texts: Annotated[
        list[Path], typer.Argument(help="JSON lines with a 'text' that the model never saw.")
    ],
    json_path: JsonOption = None,
    model: Annotated[str, typer.Option(help="Directory, or demo.")] = "demo",
) -> None:
    """What weights and KV in 8 and 4 bits cost.

    In perplexity on held-out text.
    """
    machine = start(json_path)
    from tandem.bench.perplexity import SUITE, run_perplexity

    finish(SUITE, machine, run_perplexity(model, texts, report), json_path)
