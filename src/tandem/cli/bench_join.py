"""`tandem bench join`: one record of several."""

from pathlib import Path
from typing import Annotated

import typer


def join(
    parts: Annotated[
        list[Path], typer.Argument(help="Records of `tandem bench online`.", metavar="FILE...")
    ],
    json_path: Annotated[
        Path, typer.Option("--json", help="Write the record to this file.", metavar="PATH")
    ],
) -> None:
    """One record of online cells that were run apart.

    By machine, model or load, on one machine and at one commit.
    """
    from tandem.bench.online.joining import joined
    from tandem.bench.records import check_writable, read_record, write_record
    from tandem.bench.table import print_record
    from tandem.cli.bench_records import command_line
    from tandem.spec.errors import ConfigError

    check_writable(json_path)
    twice = next((path for path in parts if parts.count(path) > 1), None)
    if twice is not None:
        raise ConfigError(f"{twice} is given twice; leave one out")
    record = joined({str(path): read_record(path) for path in parts}, command_line())
    print_record(record)
    write_record(record, json_path)
