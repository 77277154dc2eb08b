"""Finds stop strings in text that arrives in pieces."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StopMatch:
    """Where text stops.

    Attributes:
        text: what may be released of the pieces so far, up to the stop.
        stop: the stop string that was found.
    """

    text: str
    stop: str


class StopMatcher:
    """Releases text as soon as it cannot be part of a stop string.

    Text ends at the first character with which it ends in a stop string; if several end there, the
    longest counts. The result therefore does not depend on how the text is cut into pieces.

    Args:
        stops: non-empty strings; none at all is allowed.
        include: release the stop string itself too.
    """

    def __init__(self, stops: tuple[str, ...], include: bool = False) -> None:
        self._stops = tuple(sorted(stops, key=len, reverse=True))
        self._include = include
        self._held = ""

    def feed(self, piece: str, armed: bool = True) -> str | StopMatch:
        """Take the next piece; return the text that can be released, or the match that ends it.

        While not `armed`, a stop string that ends in this piece does not count; one that begins in
        it and ends later does.
        """
        if not self._stops or not piece:
            return piece
        text = self._held + piece
        match = self._find(text, searched=len(self._held)) if armed else None
        if match is not None:
            self._held = ""
            return match
        keep = self._undecided(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def flush(self) -> str:
        """Release what is held back: the text has ended."""
        held, self._held = self._held, ""
        return held

    def _find(self, text: str, searched: int) -> StopMatch | None:
        """The match that ends first behind `searched` characters, the longest of equals."""
        best: tuple[int, str] | None = None
        for stop in self._stops:
            start = text.find(stop, max(0, searched - len(stop) + 1))
            if start >= 0 and (best is None or start + len(stop) < best[0]):
                best = (start + len(stop), stop)
        if best is None:
            return None
        end, stop = best
        return StopMatch(text[: end if self._include else end - len(stop)], stop)

    def _undecided(self, text: str) -> int:
        """Length of the longest end of `text` that is the beginning of a stop string."""
        longest = min(len(text), max(len(stop) for stop in self._stops) - 1)
        for length in range(longest, 0, -1):
            end = text[len(text) - length :]
            if any(stop.startswith(end) and len(stop) > length for stop in self._stops):
                return length
        return 0
