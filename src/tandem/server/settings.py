"""What can be chosen about the server, as opposed to the engine."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tandem.spec.errors import ConfigError
from tandem.spec.units import MIB, parse_limit

_LOG_LEVELS = ("critical", "error", "warning", "info", "debug")
_MAX_PORT = 65535
# Applications and browsers' extensions have schemes of their own.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s]+|\*")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """One server's settings.

    Attributes:
        host, port: where to listen; port 0 takes any free one.
        api_keys: one of them must be sent as a bearer token; none: everybody may ask.
        served_model_names: names under which the model is known; the first is used in answers.
        chat_template: Jinja file to use for the model's own.
        shutdown_timeout_s: how long running requests may go on when the server is stopped.
        max_body_bytes: larger request bodies are refused.
        isolate_engine: run the engine in a process of its own.
        log_level: of the server's log.
        vllm_metrics: tell metrics under vLLM's names, too.
        allowed_origins: web pages of these may ask from a browser; `*`: all.
    """

    served_model_names: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = ()
    chat_template: Path | None = None
    shutdown_timeout_s: int = 5
    max_body_bytes: int = 32 * MIB
    isolate_engine: bool = True
    log_level: str = "info"
    vllm_metrics: bool = False
    allowed_origins: tuple[str, ...] = ()

    @staticmethod
    def checked(
        *,
        host: str,
        port: int,
        api_keys: Sequence[str],
        served_model_names: Sequence[str],
        chat_template: Path | None,
        shutdown_timeout_s: int,
        max_body_size: str,
        isolate_engine: bool,
        log_level: str,
        vllm_metrics: bool,
        allowed_origins: Sequence[str],
    ) -> "ServerSettings":
        """Settings as people write them.

        Raises:
            ConfigError: a value out of range.
        """
        if not 0 <= port <= _MAX_PORT:
            raise ConfigError(f"port must be between 0 and {_MAX_PORT}, not {port}", param="port")
        if shutdown_timeout_s < 0:
            raise ConfigError(
                f"shutdown_timeout must be at least 0 seconds, not {shutdown_timeout_s}",
                param="shutdown_timeout",
            )
        if log_level not in _LOG_LEVELS:
            raise ConfigError(
                f"unknown log_level '{log_level}'; use one of: {', '.join(_LOG_LEVELS)}",
                param="log_level",
            )
        if not all(api_keys):
            raise ConfigError("an API key is empty; leave --api-key out instead", param="api_key")
        for origin in allowed_origins:
            if not _ORIGIN.fullmatch(origin):
                raise ConfigError(
                    f"'{origin}' is no origin of web pages; write http://HOST:PORT, without a path,"
                    " or * for all",
                    param="allowed_origins",
                )
        return ServerSettings(
            served_model_names=tuple(served_model_names),
            host=host,
            port=port,
            api_keys=tuple(api_keys),
            chat_template=chat_template,
            shutdown_timeout_s=shutdown_timeout_s,
            max_body_bytes=parse_limit(max_body_size, param="max_body_size"),
            isolate_engine=isolate_engine,
            log_level=log_level,
            vllm_metrics=vllm_metrics,
            allowed_origins=tuple(allowed_origins),
        )
