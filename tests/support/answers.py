"""The planner's answers, each made once however many tests look at it in different forms."""

from collections.abc import Callable

from tandem.planner.answer import Answer, answer
from tandem.planner.aside import Aside
from tandem.planner.offline.answer import OfflineAnswer, offline_answer
from tandem.planner.question import Question


class Answers:
    """What takes the place of `answer` and `offline_answer`; a refusal is found anew each time.

    Questions hold dictionaries and have no hash; what they print holds every field.
    """

    def __init__(self) -> None:
        self._online: dict[str, Answer] = {}
        self._offline: dict[str, OfflineAnswer] = {}

    def online(
        self,
        question: Question,
        policy: str,
        compare: bool,
        robust: bool,
        aside: Aside,
        tell: Callable[[Answer], None] | None,
    ) -> Answer:
        """As `answer`; what is done aside changes nothing of it, and all is told at once."""
        asked = question, policy, compare, robust
        if repr(asked) not in self._online:
            self._online[repr(asked)] = answer(*asked, aside)
        found = self._online[repr(asked)]
        if tell is not None:
            tell(found)
        return found

    def offline(
        self,
        question: Question,
        policy: str = "auto",
        compare: bool = False,
        robust: bool = False,
        order: str = "auto",
        aside: Aside | None = None,
        tell: Callable[[OfflineAnswer], None] | None = None,
    ) -> OfflineAnswer:
        """As `offline_answer`, likewise."""
        asked = question, policy, compare, robust, order
        if repr(asked) not in self._offline:
            self._offline[repr(asked)] = offline_answer(*asked, aside)
        found = self._offline[repr(asked)]
        if tell is not None:
            tell(found)
        return found
