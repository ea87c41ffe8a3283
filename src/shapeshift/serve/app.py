"""The JSON API and the page, as an ASGI application."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import shapeshift.study.report
from shapeshift import __version__
from shapeshift.run.inspection import Kind

from .batcher import RefusedError
from .service import Attention, RunInfo, RunTranslations, Service, Task

MAX_SENTENCES = 64
MAX_CHARACTERS = 4000
"""Maximum length of a sentence in characters, checked before it is split into subwords."""

LINE = r"^[^\n\x00]*$"
"""A sentence is what a file may have as a line, see `data.sources.files`."""

LINGER = 16
"""A body that is too large is read up to this many times `Limits.max_body` before it is refused:
most clients read the response only after they have sent the whole body."""

NO_JSON = "the body is not JSON in UTF-8, or nested too deeply"

_LOOPBACK = re.compile(rb"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?", re.IGNORECASE)
"""Values of the header `Host` that name this machine."""

FILES = {
    **{f"/{name}": Path(__file__).with_name(name) for name in ("page.js", "page.css")},
    "/": Path(__file__).with_name("page.html"),
    "/look.css": Path(shapeshift.study.report.__file__).with_name("page.css"),
}
PATHS = {*FILES, "/runs", "/translate", "/attention", "/health", "/metrics", "/openapi.json"}
HEADERS = (
    (b"content-security-policy", b"default-src 'self'; img-src data:; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
)


class _Asked(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    runs: list[str] | None = Field(
        default=None,
        description="Names of runs; all runs if missing.",
        min_length=1,
        max_length=100,
    )


class TranslateRequest(_Asked):
    """Sentences to translate."""

    sentences: list[Annotated[str, Field(pattern=LINE, max_length=MAX_CHARACTERS)]] = Field(
        min_length=1, max_length=MAX_SENTENCES
    )


class AttentionRequest(_Asked):
    """A sentence to translate, and the kind of attention to return."""

    sentence: str = Field(pattern=r"^[^\n\x00]*[^\s\x00][^\n\x00]*$", max_length=MAX_CHARACTERS)
    kind: Kind = "cross-attention"


class Error(BaseModel):
    """The reason why a request was refused, in one sentence."""

    error: str


REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"description": description, "model": Error}
    for status, description in {
        400: "The request cannot be read.",
        404: "There is no such run.",
        408: "The body did not arrive in time.",
        413: "The body, a sentence or their number is too large.",
        422: "A field is missing or wrong.",
        429: "The queue is full; see Retry-After.",
        503: "The request took too long, or the server is stopping; see Retry-After.",
    }.items()
}


def make_app(service: Service, *, loopback_only: bool) -> ASGIApp:
    """Return the ASGI application.

    Args:
        loopback_only: refuse requests whose header `Host` does not name this machine. This protects
            against pages of other sites that resolve their own name to this server (DNS
            rebinding).
    """
    app = FastAPI(
        title="Shapeshift",
        version=__version__,
        docs_url=None,  # it would load scripts from elsewhere
        redoc_url=None,
        exception_handlers={
            HTTPException: _refused,
            RequestValidationError: _invalid,
            Exception: _broken,
        },
    )

    @app.post("/translate", responses=REFUSALS)
    async def translate(asked: TranslateRequest) -> list[RunTranslations]:
        """Translate sentences with one or more runs."""
        names = service.names(asked.runs)
        results = await service.work([Task(name) for name in names], asked.sentences)
        return [RunTranslations(*each) for each in zip(names, results, strict=True)]

    @app.post("/attention", responses=REFUSALS)
    async def attention(asked: AttentionRequest) -> list[Attention]:
        """Translate one sentence and return the attention weights of all layers and heads."""
        tasks = [Task(name, asked.kind) for name in service.names(asked.runs)]
        return [line for (line,) in await service.work(tasks, [asked.sentence])]

    @app.get("/runs")
    async def runs() -> list[RunInfo]:
        """List the runs that the server has loaded."""
        return service.info()

    @app.head("/health", include_in_schema=False)
    @app.get("/health", responses={503: REFUSALS[503]})
    async def health() -> dict[str, str]:
        """Report whether the server accepts requests: 503 while it is stopping."""
        service.refuse_if_draining()
        return {"status": "ready"}

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(generate_latest(service.registry), media_type=CONTENT_TYPE_LATEST)

    async def page(request: Request) -> Response:
        return FileResponse(FILES[request.scope["path"]], headers={"cache-control": "no-cache"})

    for path in FILES:
        app.add_route(path, page, include_in_schema=False)
    schemas = app.openapi()["components"]["schemas"]
    for name in ("TranslateRequest", "AttentionRequest"):
        schemas[name]["properties"]["runs"]["anyOf"][0]["items"]["enum"] = [*service.runs]
    return Gate(app, service, loopback_only)


def _error(status: int, message: str, headers: Any = None) -> Response:
    # The message may quote a lone surrogate of the request, which UTF-8 cannot encode.
    message = message.encode("utf-8", "replace").decode("utf-8")[:500]
    return JSONResponse({"error": message}, status, headers)


async def _refused(request: Request, error: Any) -> Response:
    # Of FastAPI, if it cannot parse the body in another way than `_invalid` gets it.
    detail = NO_JSON if "parsing the body" in error.detail else error.detail
    return _error(error.status_code, detail, error.headers)


async def _invalid(request: Request, error: Any) -> Response:
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return _error(400, NO_JSON)
    where = ".".join(str(part)[:50] for part in first["loc"][1:]) or "body"
    if first["type"] == "string_pattern_mismatch":
        wrong = "got an empty text" if not first["input"].strip() else "without a NUL"
        return _error(422, f"{where}: expected one line of text, {wrong}")
    if first["type"] == "model_attributes_type":
        header = "the header Content-Type: application/json"
        return _error(422, f"{where}: expected a JSON object, sent with {header}")
    is_too_large = first["type"] in ("too_long", "string_too_long")
    return _error(413 if is_too_large else 422, f"{where}: {first['msg']}")


async def _broken(request: Request, error: Any) -> Response:
    return _error(500, "a bug of the server; its standard error has the traceback")


class Gate:
    """Middleware that checks every request before the application gets it: the header `Host`, the
    size of the body and the time limits. It also cancels the request if the client disconnects, and
    records the metrics.
    """

    def __init__(self, app: ASGIApp, service: Service, loopback_only: bool):
        self._app = app
        self._service = service
        self._loopback_only = loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        began, status = time.monotonic(), 0

        async def noting_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        try:
            async with asyncio.timeout(self._service.limits.request_s):
                host = next((value for name, value in scope["headers"] if name == b"host"), b"")
                if self._loopback_only and not _LOOPBACK.fullmatch(host):
                    raise RefusedError(400, "the header Host does not name this machine")
                body = await self._read(receive)
                await self._answer(scope, receive, noting_send, body)
        except (RefusedError, TimeoutError, asyncio.CancelledError) as error:
            if not isinstance(error, RefusedError):
                error = RefusedError(503, "it took too long; ask again later", 10)
            if not status:
                response = await _refused(Request(scope), error)
                response.headers["connection"] = "close"  # the body may still be on its way
                await response(scope, receive, noting_send)
        finally:
            path = scope["path"] if scope["path"] in PATHS else "other"
            self._service.observe(path, status, time.monotonic() - began)

    async def _read(self, receive: Receive) -> bytes:
        most, body, size = self._service.limits.max_body, bytearray(), 0
        more = True
        try:
            async with asyncio.timeout(self._service.limits.arrival_s):
                while more and size <= LINGER * most:
                    message = await receive()
                    size += len(message.get("body", b""))
                    if size <= most:
                        body += message.get("body", b"")
                    more = message.get("more_body", False)
        except TimeoutError:
            raise RefusedError(408, "the body did not arrive in time") from None
        if size > most:
            raise RefusedError(413, f"the body has more than {most:,} bytes; send less at a time")
        return bytes(body)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> None:
        """Call the application, and cancel it if the client disconnects."""
        messages: list[Message] = [{"type": "http.request", "body": body}]

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        app = asyncio.ensure_future(self._app(scope, replay, send))
        gone = asyncio.ensure_future(receive())  # after the body, nothing else comes
        try:
            await asyncio.wait((app, gone), return_when=asyncio.FIRST_COMPLETED)
            if app.done():
                app.result()
        finally:
            app.cancel()
            gone.cancel()
            await asyncio.wait((app, gone))
