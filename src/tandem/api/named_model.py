"""A model and the names by which requests may ask for it."""

from dataclasses import dataclass

from tandem.api.errors import ApiError
from tandem.engine.frontend.prompts import PromptReader


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model under its names.

    Attributes:
        reader: makes tokens of prompts; requests can be prepared before there is an engine.
        names: at least one; the first is used in answers.
    """

    reader: PromptReader
    names: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name in answers."""
        return self.names[0]

    def check_name(self, name: str | None) -> None:
        """Refuse another model; none at all means this one.

        Raises:
            ApiError: 404.
        """
        if name is not None and name not in self.names:
            known = " or ".join(f"'{known}'" for known in self.names)
            raise ApiError(
                404,
                f"the model '{name}' is not served here; ask for {known}, or give the model that "
                "name, too (--served-model-name)",
                param="model",
                code="model_not_found",
            )
