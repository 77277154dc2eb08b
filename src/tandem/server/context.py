"""What every route needs, made once per server."""

import time
from dataclasses import dataclass, field

from starlette.requests import Request

from tandem.api.named_model import NamedModel
from tandem.compose import Service
from tandem.engine.frontend.frontend import Frontend
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
    def model(self) -> NamedModel:
        """The model under its served names."""
        return NamedModel(self.frontend, self.settings.served_model_names)


def context_of(request: Request) -> ServerContext:
    """The context of the server that received `request`."""
    return request.app.state.context
