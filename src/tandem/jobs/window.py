"""Bounds what of a job is in the engine's hands at once."""

import asyncio

from tandem.jobs.answerer import Load


class Window:
    """Room for some sequences and some prompt tokens; when it is empty, any request fits.

    One task may wait at a time. Several times what the engine runs at once keeps the engine full;
    more would only take memory.
    """

    def __init__(self, max_sequences: int, max_tokens: int) -> None:
        self._max_sequences = max_sequences
        self._max_tokens = max_tokens
        self._num_sequences = 0
        self._num_tokens = 0
        self._changed = asyncio.Event()
        self._is_closed = False

    async def enter(self, load: Load) -> bool:
        """Wait for room and take it; False once the window is closed."""
        while not (self._is_closed or self._fits(load)):
            self._changed.clear()
            await self._changed.wait()
        if self._is_closed:
            return False
        self._num_sequences += load.num_sequences
        self._num_tokens += load.num_tokens
        return True

    def leave(self, load: Load) -> None:
        """Give room back."""
        self._num_sequences -= load.num_sequences
        self._num_tokens -= load.num_tokens
        self._changed.set()

    def close(self) -> None:
        """Let nobody in any more."""
        self._is_closed = True
        self._changed.set()

    @property
    def is_closed(self) -> bool:
        """True once nobody gets in."""
        return self._is_closed

    def _fits(self, load: Load) -> bool:
        if not self._num_sequences:
            return True
        return (
            self._num_sequences + load.num_sequences <= self._max_sequences
            and self._num_tokens + load.num_tokens <= self._max_tokens
        )
