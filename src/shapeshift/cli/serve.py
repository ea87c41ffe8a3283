"""`shapeshift serve`: trained runs over HTTP, and a page to compare them by hand."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from shapeshift._system.errors import require
from shapeshift.cli.options import SetOption, refuse_without_effect
from shapeshift.cli.output import notice
from shapeshift.cli.signals import SignalledError
from shapeshift.serve.limits import Limits


def serve(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN...",
            help="Folders of trained runs, or of models that `shapeshift export` wrote into them:"
            " runs/mine runs/mine/ctranslate2-int8.",
        ),
    ],
    host: Annotated[
        str,
        typer.Option(
            help="Address of the server. If other machines can reach it, they can use the server:"
            " there is no password."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 chooses a free one.")] = 8000,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1, max=86_400, help="Limit in seconds for a request (then 503) and for stopping."
        ),
    ] = Limits.request_s,
    overrides: SetOption = None,
) -> None:
    """Serve trained runs: a JSON API, and a page to compare them.

    The page shows the translations of several runs next to each other, with their attention. The
    API is described at /openapi.json: POST /translate, POST /attention, GET /runs, /health and
    /metrics (Prometheus). Sentences of all requests are translated in batches. A sentence of more
    than decoding.max_source_length subwords (256 by default) is refused.

    After SIGTERM or Ctrl-C, the server translates the waiting sentences and ends; after a second
    signal, it ends at once.

    Example: shapeshift serve runs/mine-shape runs/mine-ape
    """
    from shapeshift._system.threads import set_num_threads

    settings = overrides or []
    refuse_without_effect(settings)
    require("serve", "fastapi", "uvicorn", "prometheus_client")
    from shapeshift.serve.server import Server, address, bind, is_loopback
    from shapeshift.serve.service import ServedRun, Service

    with bind(host, port) as listener:
        served = [ServedRun(path, settings) for path in dict.fromkeys(runs)]
        set_num_threads(max(run.config.model.dim for run in served))
        service = Service(served, Limits(request_s=timeout))
        if not is_loopback(listener):
            notice(
                f"there is no password: anyone who can reach {host} can use this server", "yellow"
            )
        server = Server(service, listener)
        notice(f"{address(listener)} serves {', '.join(service.runs)}; Ctrl-C stops")
        has_ended = server.serve_until_signal()
    if server.received is not None:
        if not has_ended:  # a batch that takes long; at its end Python would not wait for it either
            os._exit(128 + server.received)
        raise SignalledError(server.received)
