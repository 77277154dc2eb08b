"""Triton's interpreter, looking through the language once instead of in every call.

While a kernel runs, the interpreter has its own operations in the place of the language's. It puts
them there at each launch, and again whenever a jitted function calls another, for which it goes
through all members of the language: half of the time of attention's tests. What a call would
replace has been replaced by then, unless its module sees a part of the language that no function of
the launch has seen.
"""

import inspect
from collections.abc import Callable
from functools import cache, wraps
from types import FunctionType
from typing import Any

import triton.language as tl
from triton.runtime import interpreter


class Replaced:
    """What takes the place of the interpreter's `_patch_lang`.

    Attributes:
        seen: parts of the language that have been replaced in this launch.
    """

    def __init__(self, replace: Callable[[FunctionType], Any]) -> None:
        self._replace = replace
        self.seen: set[str] = set()

    def __call__(self, function: FunctionType) -> Any:
        """The scope that restores the language where a launch begins; calls ask for none."""
        parts = {
            value.__name__
            for value in function.__globals__.values()
            if value is tl or value is tl.core
        }
        if parts and parts <= self.seen:
            return None
        self.seen |= parts
        return self._replace(function)


def replace_once_a_launch() -> None:
    """From here on; where the interpreter is another than is known here, it stays as it is."""
    known = ("_LangPatchScope", "_patch_lang", "_patch_builtin", "_patch_attr", "GridExecutor")
    if not all(hasattr(interpreter, name) for name in known):
        return
    if isinstance(interpreter._patch_lang, Replaced):
        return
    replaced = Replaced(interpreter._patch_lang)
    launch = interpreter.GridExecutor.__call__

    @wraps(launch)
    def launched(self: interpreter.GridExecutor, *args: Any, **options: Any) -> None:
        replaced.seen.clear()
        try:
            launch(self, *args, **options)
        finally:
            replaced.seen.clear()

    def replace_operations(part: Any, builder: object, scope: Any) -> None:
        for name, member in _operations(part):
            interpreter._patch_attr(part, name, member, builder, scope)

    interpreter._patch_lang = replaced
    interpreter._patch_builtin = replace_operations
    interpreter.GridExecutor.__call__ = launched


@cache
def _operations(part: Any) -> list[tuple[str, Any]]:
    """Members of a part of the language that the interpreter has others for."""
    return [(name, each) for name, each in inspect.getmembers(part) if tl.core.is_builtin(each)]
