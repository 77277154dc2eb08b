"""A loaded model and the names by which requests may ask for it."""

from dataclasses import dataclass

from tandem.api.errors import ApiError
from tandem.engine.frontend.frontend import Frontend


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model under its names.

    Attributes:
        names: at least one; the first is used in answers.
    """

    frontend: Frontend
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
