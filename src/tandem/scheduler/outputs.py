"""What one call of `observe` tells the requests' owners."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from tandem.plan.binding import IntArray, LongArray
from tandem.spec.request import RequestOutput


@dataclass(frozen=True, slots=True)
class TokenColumns:
    """One more token each of requests that go on; nothing else is to be said of them.

    Attributes:
        token_ids: int64 [len(request_ids)]; cached_tokens: int32, as long.
    """

    request_ids: list[str]
    token_ids: LongArray
    cached_tokens: IntArray

    def outputs(self) -> Iterator[RequestOutput]:
        """As objects."""
        columns = (self.request_ids, self.token_ids.tolist(), self.cached_tokens.tolist())
        for request_id, token, cached in zip(*columns, strict=True):
            yield RequestOutput(request_id, (token,), None, None, (), None, cached)


class StepOutputs(Sequence[RequestOutput]):
    """Outputs that become objects when they are first looked at.

    The scheduler's own time then does not grow with the number of running requests, and the objects
    are made where they are delivered.
    """

    def __init__(self) -> None:
        self._parts: list[TokenColumns | RequestOutput] = []
        self._made: list[RequestOutput] | None = None
        self._count = 0
        self._num_tokens = 0

    @property
    def num_tokens(self) -> int:
        """New tokens of all requests."""
        return self._num_tokens

    def add(self, output: RequestOutput) -> None:
        """Append one output."""
        self._parts.append(output)
        self._count += 1
        self._num_tokens += len(output.token_ids)
        self._made = None

    def add_columns(self, columns: TokenColumns) -> None:
        """Append one output per row of `columns`."""
        self._parts.append(columns)
        self._count += len(columns.request_ids)
        self._num_tokens += len(columns.request_ids)
        self._made = None

    def parts(self) -> Iterator[TokenColumns | RequestOutput]:
        """As they were added: columns where there is nothing to be said but tokens."""
        return iter(self._parts)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[RequestOutput]:
        return iter(self._all())

    @overload
    def __getitem__(self, index: int) -> RequestOutput: ...
    @overload
    def __getitem__(self, index: slice) -> list[RequestOutput]: ...
    def __getitem__(self, index: int | slice) -> RequestOutput | list[RequestOutput]:
        return self._all()[index]

    def _all(self) -> list[RequestOutput]:
        if self._made is None:
            self._made = []
            for part in self._parts:
                if isinstance(part, TokenColumns):
                    self._made.extend(part.outputs())
                else:
                    self._made.append(part)
        return self._made
