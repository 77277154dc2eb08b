"""What every route needs, made once per server."""

import time
from dataclasses import dataclass, field

from starlette.requests import Request

from tandem.compose import Service
from tandem.engine.frontend.frontend import Frontend
from tandem.server.errors import unknown_model
from tandem.server.metrics import ServerMetrics
from tandem.server.settings import ServerSettings


@dataclass(frozen=True, slots=True)
class ServerContext:
    """A loaded service behind an API.

    Attributes:
        started_at: Unix time at which the model was loaded.
    """

    service: Service
    settings: ServerSettings
    metrics: ServerMetrics
    started_at: int = field(default_factory=lambda: int(time.time()))

    @property
    def frontend(self) -> Frontend:
        """The text side of the engine."""
        return self.service.frontend

    @property
    def model_name(self) -> str:
        """The model's name in answers."""
        return self.settings.served_model_names[0]

    def check_model(self, name: str | None) -> None:
        """Refuse a model that is not served; none at all means the one that is.

        Raises:
            ApiError: 404.
        """
        if name is not None and name not in self.settings.served_model_names:
            raise unknown_model(name)


def context_of(request: Request) -> ServerContext:
    """The context of the server that received `request`."""
    return request.app.state.context
