"""What would make the host wait for an accelerator, or an accelerator for the host's memory."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from tandem.plan.program import Queue
from tandem.runtime.frozen_ops import ASKS_FOR_VALUES, SIZES_BY_VALUES
from tandem.runtime.op_runner import OpRunner
from tandem.runtime.running import Running

_ASKING = frozenset(ASKS_FOR_VALUES + SIZES_BY_VALUES)
_LINKS = (Queue.H2D, Queue.D2H)


class _Noted(TorchDispatchMode):
    """Names and places of torch's operations within that wait."""

    def __init__(self, on_link: bool) -> None:
        super().__init__()
        self._on_link = on_link
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        name = func._schema.name.partition("::")[2]
        if name in _ASKING or (self._on_link and _is_waited_for(name, args, options)):
            self.found.append(f"{name} in {_caller()}")
        return func(*args, **options)


def _is_waited_for(name: str, args: Any, options: dict[str, Any]) -> bool:
    """A copy between the host's and the device's memory that does not say it need not be."""
    if name == "copy_":
        return not (args[2] if len(args) > 2 else options.get("non_blocking", False))
    return name == "_to_copy" and not options.get("non_blocking", False)


def _caller() -> str:
    ours = [each for each in traceback.extract_stack() if "/tandem/" in each.filename]
    last = ours[-1]
    return f"{last.filename.rpartition('/tandem/')[2]}:{last.lineno} ({last.line})"


@contextmanager
def waits_noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What operations of the accelerator's queues do within, each with its operation's kind: what
    asks for a number on the device, and on the link, copies that are waited for.
    """
    found: list[str] = []
    run = OpRunner.run

    def noted(runner: OpRunner, running: Running) -> None:
        op = running.op
        if op.queue is Queue.CPU:
            run(runner, running)
            return
        with _Noted(op.queue in _LINKS) as mode:
            run(runner, running)
        found.extend(f"{op.kind.name} {op.part.name} on {op.queue}: {each}" for each in mode.found)

    with monkeypatch.context() as patched:
        patched.setattr(OpRunner, "run", noted)
        yield found
