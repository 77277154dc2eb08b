"""`tandem serve`."""

from pathlib import Path
from typing import Annotated

import typer

from tandem.cli.arguments import ModelArgument, served_names
from tandem.cli.engine_flags import EngineOptions, fill_engine
from tandem.cli.flags import env_twin, list_option
from tandem.cli.terminal import load_progress


@fill_engine
def serve(
    engine: EngineOptions,
    *,
    model: ModelArgument = "demo",
    host: Annotated[
        str, typer.Option(help="Address to listen on.", envvar=env_twin("host"))
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0: any.", envvar=env_twin("port"))
    ] = 8000,
    api_key: Annotated[
        list[str] | None, list_option("api_key", "Key that clients must send; repeatable.", "KEY")
    ],
    served_model_name: Annotated[
        list[str] | None,
        list_option("served_model_name", "Name of the model in the API; repeatable.", "NAME"),
    ],
    allowed_origins: Annotated[
        list[str] | None,
        list_option(
            "allowed_origins",
            "Origin whose web pages may ask from a browser, or *; repeatable.",
            "ORIGIN",
        ),
    ],
    chat_template: Annotated[
        Path | None,
        typer.Option(
            help="Jinja file to use for the model's own.", envvar=env_twin("chat_template")
        ),
    ] = None,
    shutdown_timeout: Annotated[
        int,
        typer.Option(
            help="Seconds to let requests finish when stopped.", envvar=env_twin("shutdown_timeout")
        ),
    ] = 5,
    max_body_size: Annotated[
        str,
        typer.Option(
            help="Largest request body.", envvar=env_twin("max_body_size"), metavar="SIZE"
        ),
    ] = "32MiB",
    isolate_engine: Annotated[
        bool,
        typer.Option(
            help="Run the engine in a process of its own.", envvar=env_twin("isolate_engine")
        ),
    ] = True,
    log_level: Annotated[
        str,
        typer.Option(help="critical, error, warning, info or debug.", envvar=env_twin("log_level")),
    ] = "info",
    vllm_metrics: Annotated[
        bool,
        typer.Option(
            "--vllm-metrics",
            help="Tell metrics under vLLM's names, too.",
            envvar=env_twin("vllm_metrics"),
        ),
    ] = False,
) -> None:
    """Serve a model over an OpenAI-compatible API."""
    from tandem.server.settings import ServerSettings

    config = engine(model)
    settings = ServerSettings.checked(
        host=host,
        port=port,
        api_keys=api_key or [],
        served_model_names=served_names(served_model_name, model),
        chat_template=chat_template,
        shutdown_timeout_s=shutdown_timeout,
        max_body_size=max_body_size,
        isolate_engine=isolate_engine,
        log_level=log_level,
        vllm_metrics=vllm_metrics,
        allowed_origins=allowed_origins or [],
    )
    from tandem.server.serve import serve_model

    with load_progress() as progress:
        run = serve_model(config, settings, progress)
    run()
