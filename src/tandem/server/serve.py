"""Binds, loads, serves, and leaves nothing behind."""

import asyncio
import ipaddress
import signal
import socket
import sys
from collections.abc import Callable

import uvicorn

from tandem.compose import Service, open_in_child, open_in_process, open_service
from tandem.server.app import create_app
from tandem.server.context import ServerContext
from tandem.server.metrics import ServerMetrics
from tandem.server.settings import ServerSettings
from tandem.spec.config import EngineConfig
from tandem.spec.errors import ConfigError
from tandem.spec.progress import Progress, no_progress
from tandem.spec.units import parse_duration_s

_BACKLOG = 2048
# For the answers of aborted requests to reach their clients.
_LAST_WORDS_S = 2


def bind(settings: ServerSettings) -> socket.socket:
    """A listening socket: it listens at once, so that a second server is refused at once.

    Raises:
        ConfigError: the address is taken, or not ours.
    """
    address = f"{settings.host}:{settings.port}"
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {address}: {error.strerror}; choose another --host", param="host"
        ) from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(target)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {address}: {error.strerror}; stop what runs there or choose "
            "another --port",
            param="port",
        ) from None
    return listener


def serve_model(
    config: EngineConfig, settings: ServerSettings, progress: Progress = no_progress
) -> Callable[[], int]:
    """Bind and load; returns what serves until it is stopped, and then its exit status.

    Raises:
        TandemError: the address is taken, or the model cannot be loaded.
    """
    # The finally clauses below run on a termination too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    listener = bind(settings)
    open_client = open_in_child if settings.isolate_engine else open_in_process
    try:
        service = open_service(config, open_client, progress, settings.chat_template)
    except BaseException:
        listener.close()
        raise

    def run() -> int:
        server = DrainingServer(settings, service)

        def stop() -> None:
            server.should_exit = True

        bound = config.ttft_bound
        metrics = ServerMetrics(
            None if bound is None else parse_duration_s(bound),
            settings.served_model_names[0] if settings.vllm_metrics else None,
        )
        context = ServerContext(service, settings, metrics)
        server.config.app = create_app(context)
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        for line in (*service.description, *access_notes(settings, host)):
            print(f"tandem: {line}", file=sys.stderr)
        print(f"tandem: serving {context.model.name} at http://{shown}:{port}/v1", file=sys.stderr)
        sys.stderr.flush()
        service.frontend.client.on_death(stop)
        try:
            server.run(sockets=[listener])
        except KeyboardInterrupt:
            pass  # stopped by hand, in order
        finally:
            death = service.frontend.client.death
            service.close()
            listener.close()
        if death is not None:
            raise death
        return 0

    return run


def access_notes(settings: ServerSettings, address: str) -> list[str]:
    """Lines about who may ask a server that listens on the IP address `address`, if that is more
    than whoever started it may have meant.
    """
    is_of_this_machine = ipaddress.ip_address(address.partition("%")[0]).is_loopback
    if is_of_this_machine or settings.api_keys:
        return []
    return [f"note: whoever reaches {address} may ask; --api-key asks them for a key"]


class DrainingServer(uvicorn.Server):
    """Lets requests finish when it is stopped, aborts those that take too long, and still answers
    them: a stream ends with finish reason `abort`, not in the middle of a line.
    """

    def __init__(self, settings: ServerSettings, service: Service) -> None:
        super().__init__(
            uvicorn.Config(
                app=None,  # pyright: ignore[reportArgumentType]
                log_level=settings.log_level,
                timeout_graceful_shutdown=settings.shutdown_timeout_s + _LAST_WORDS_S,
                server_header=False,
            )
        )
        self._settings = settings
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Drain, then stop."""
        loop = asyncio.get_running_loop()
        abort_all = self._service.frontend.client.abort_all
        loop.call_later(self._settings.shutdown_timeout_s, abort_all)
        await super().shutdown(sockets)
