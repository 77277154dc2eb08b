"""Options that belong together, declared as the fields of a dataclass."""

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_type_hints


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """A decorator: a parameter whose type is a dataclass stands for its fields.

    The command line shows the fields as options, in the parameter's place; they are annotated as
    parameters of a command are.
    """
    signature = inspect.signature(command, eval_str=True)
    groups: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if is_dataclass(parameter.annotation)
    }

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field.name: given.pop(field.name) for field in fields(group)})
        command(**given)

    parameters: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name in groups:
            parameters.extend(_options(groups[name]))
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
    run.__signature__ = signature.replace(parameters=parameters)  # pyright: ignore[reportAttributeAccessIssue]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def _options(group: Any) -> Iterator[inspect.Parameter]:
    kinds = get_type_hints(group, include_extras=True)
    for field in fields(group):
        default = inspect.Parameter.empty if field.default is MISSING else field.default
        yield inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=default,
            annotation=kinds[field.name],
        )
