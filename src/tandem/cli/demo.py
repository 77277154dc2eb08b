"""`tandem demo`."""

import typer


def demo() -> None:
    """Show in a minute what Tandem is for.

    On an emulated accelerator with too little memory.
    """
    from rich.console import Console

    from tandem.demo.show import run_demo

    if not run_demo(Console()):
        raise typer.Exit(1)
