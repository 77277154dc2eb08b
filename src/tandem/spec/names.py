"""Names that come with the package, as users may write them."""

from collections.abc import Iterable


def folded(name: str) -> str:
    """What names are compared by: upper and lower case do not matter."""
    return name.lower()


def known_name(name: str, known: Iterable[str]) -> str | None:
    """The one of `known` that `name` means; None: none of them."""
    wanted = folded(name)
    return next((each for each in known if folded(each) == wanted), None)
