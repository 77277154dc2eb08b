"""A record as one table for people: the share of the bound first, the figure itself after."""

from rich.console import Console
from rich.table import Table

from tandem.bench.records import BenchRecord, BenchRow

_FILE_WIDTH = 140


def print_record(record: BenchRecord, console: Console | None = None) -> None:
    """Print all rows; rows of one case lie between two lines."""
    console = console or _standard_output()
    table = Table(title=f"{record.suite} on {record.machine['cpu']}", title_justify="left")
    for name in ("case", "metric", "variant"):
        table.add_column(name, overflow="fold")
    for name in ("of bound", "value", "spread", "bound"):
        table.add_column(name, justify="right")
    case = None
    for row in record.rows:
        if case not in (None, row.case):
            table.add_section()
        table.add_row("" if row.case == case else row.case, *_cells(row))
        case = row.case
    console.print(table)


def _standard_output() -> Console:
    console = Console()
    return console if console.is_terminal else Console(width=_FILE_WIDTH)


def _cells(row: BenchRow) -> tuple[str, ...]:
    low, high = row.spread or (row.value, row.value)
    fraction = "" if row.fraction is None else f"{row.fraction:.2f}"
    spread = "" if low == high else f"{_number(low)} .. {_number(high)}"
    bound = "" if row.bound is None else _number(row.bound)
    return row.metric, row.variant, fraction, f"{_number(row.value)} {row.unit}", spread, bound


def _number(value: float) -> str:
    """Three significant digits, whole from a hundred on."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
