"""The JSON API and the page, as an ASGI application."""

from __future__ import annotations

import asyncio
import re
import time
from importlib.resources import files
from typing import Annotated, Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shapeshift import __version__
from shapeshift.lab.inspection import Kind

from .service import RefusedError, Service, Task

MAX_SENTENCES = 64
MAX_CHARACTERS = 4000
"""Of a sentence. Subwords are counted as well, which needs the text to be short."""

LINGER = 16
"""How many times the largest body is read before the connection is closed."""

_LOOPBACK = re.compile(rb"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?", re.IGNORECASE)
"""This machine in the header `Host`."""

PAGE = {
    "/": ("page.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
}
ROUTES = (*PAGE, "/runs", "/translate", "/attention", "/health", "/metrics", "/openapi.json")
HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'self'; img-src data:; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


Sentence = Annotated[str, Field(pattern=r"^[^\n]*$", max_length=MAX_CHARACTERS)]
Runs = Annotated[
    list[str] | None, Field(description="Names of runs; all if it is missing.", max_length=100)
]


def _whole(number: Any) -> Any:
    """Return 2 for 2.0, which is an integer in JSON."""
    return int(number) if isinstance(number, float) and number.is_integer() else number


class TranslateRequest(_Model):
    """Sentences to translate."""

    sentences: list[Sentence] = Field(min_length=1, max_length=MAX_SENTENCES)
    runs: Runs = None
    n_best: Annotated[int, BeforeValidator(_whole)] = Field(
        default=1, ge=1, description="Candidates; at most the beam."
    )
    tokens: bool = Field(default=False, description="Also return each token's log-probability.")


class AttentionRequest(_Model):
    """A sentence whose attention to show."""

    sentence: str = Field(pattern=r"^[^\n]*\S[^\n]*$", max_length=MAX_CHARACTERS)
    runs: Runs = None
    kind: Kind = "cross-attention"


class Candidate(BaseModel):
    """A translation: its text, log p(y | x), and that divided by the length penalty.

    `at_limit`: it has as many tokens as allowed, so that its end may be missing.
    """

    text: str
    score: float
    log_prob: float
    at_limit: bool
    tokens: list[str] | None
    token_log_probs: list[float] | None


class Line(BaseModel):
    """The translations of a sentence, best first."""

    candidates: list[Candidate]


class RunTranslations(BaseModel):
    """What one run makes of all sentences."""

    run: str
    lines: list[Line]


class TranslateResponse(BaseModel):
    """The translations by each run."""

    results: list[RunTranslations]


class RunAttention(BaseModel):
    """A translation and the attention on it, by layer, head, row and column; null where the model
    runs in another engine."""

    run: str
    translation: Candidate
    rows: list[str]
    columns: list[str]
    attention: list[list[list[list[float]]]] | None


class AttentionResponse(BaseModel):
    """The attention of each run."""

    kind: Kind
    results: list[RunAttention]


class RunInfo(BaseModel):
    """A run that is served."""

    name: str
    position: str
    engine: str
    beam: int
    max_subwords: int
    shows_attention: bool


class RunsResponse(BaseModel):
    """The runs that are served."""

    runs: list[RunInfo]


class Health(BaseModel):
    """The state of a server that answers."""

    status: str = "ready"


class Error(BaseModel):
    """Why a request is refused, in one sentence."""

    error: str


REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The request cannot be read."},
    404: {"description": "There is no such run."},
    408: {"description": "The body did not arrive in time."},
    413: {"description": "The body, a sentence or their number is too large."},
    422: {"description": "A field is missing or wrong."},
    429: {"description": "The queue is full; see Retry-After."},
    503: {"description": "It takes too long, or the server is about to stop; see Retry-After."},
}
for _refusal in REFUSALS.values():
    _refusal["model"] = Error


def make_app(service: Service, *, loopback_only: bool) -> ASGIApp:
    """Return the application.

    Args:
        service: the runs.
        loopback_only: the header `Host` must name this machine, so that no page elsewhere reaches
            the server under a name of its own (DNS rebinding).
    """
    app = FastAPI(
        title="Shapeshift",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )

    @app.post("/translate", responses=REFUSALS)
    async def translate(asked: TranslateRequest) -> TranslateResponse:
        """Translate sentences with one or several runs."""
        runs = service.chosen(asked.runs)
        for run in runs:
            if asked.n_best > run.config.decoding.beam:
                beam = run.config.decoding.beam
                raise RefusedError(422, f"n_best: at most {beam}, the beam of {run.name}")
        tasks = [(run, Task(run.name, asked.n_best, asked.tokens)) for run in runs]
        results = await service.work(tasks, asked.sentences)
        return TranslateResponse.model_validate(
            {
                "results": [
                    {"run": run.name, "lines": lines}
                    for run, lines in zip(runs, results, strict=True)
                ]
            }
        )

    @app.post("/attention", responses=REFUSALS)
    async def attention(asked: AttentionRequest) -> AttentionResponse:
        """Translate a sentence and return the attention of all layers and heads."""
        runs = service.chosen(asked.runs)
        tasks = [(run, Task(run.name, tokens=True, attention=asked.kind)) for run in runs]
        results = []
        for run, (line,) in zip(runs, await service.work(tasks, [asked.sentence]), strict=True):
            (translation,) = line.pop("candidates")
            results.append({"run": run.name, "translation": translation, **line})
        return AttentionResponse.model_validate({"kind": asked.kind, "results": results})

    @app.get("/runs")
    async def runs() -> RunsResponse:
        """Return the runs that are served."""
        return RunsResponse(
            runs=[
                RunInfo(
                    name=run.name,
                    position=run.position,
                    engine=run.engine,
                    beam=run.config.decoding.beam,
                    max_subwords=service.limit(run),
                    shows_attention=run.model is not None,
                )
                for run in service.runs.values()
            ]
        )

    @app.get("/health", responses={503: REFUSALS[503]})
    async def health() -> Health:
        """Return whether new work is taken."""
        if service.draining:
            raise RefusedError(503, "the server is about to stop", 10)
        return Health()

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    for path, (name, media_type) in PAGE.items():
        app.get(path, include_in_schema=False)(_serving(name, media_type))

    schemas = app.openapi()["components"]["schemas"]
    for name in ("TranslateRequest", "AttentionRequest"):
        schemas[name]["properties"]["runs"]["anyOf"][0]["items"]["enum"] = [*service.runs]
    beams = [run.config.decoding.beam for run in service.runs.values()]
    schemas["TranslateRequest"]["properties"]["n_best"]["maximum"] = max(beams)
    app.exception_handler(RefusedError)(_refused)
    app.exception_handler(RequestValidationError)(_invalid)
    app.exception_handler(HTTPException)(_failed)
    app.exception_handler(Exception)(_broken)
    return Gate(app, service, loopback_only)


def _serving(name: str, media_type: str) -> Any:
    text = (files("shapeshift.serve") / name).read_text("utf-8")
    if name.endswith(".css"):  # the look of the report
        text = (files("shapeshift.report") / name).read_text("utf-8") + text

    async def serve() -> Response:
        return Response(text, media_type=media_type, headers={"cache-control": "no-cache"})

    return serve


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    # What a request says may hold half a character, which cannot be sent.
    message = message.encode("utf-8", "replace").decode("utf-8")[:500]
    return JSONResponse({"error": message}, status, headers)


async def _refused(request: Request, error: Any) -> Response:
    wait = error.retry_after_s
    return _error(error.status, str(error), wait and {"Retry-After": str(wait)})


async def _invalid(request: Request, error: Any) -> Response:
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return _error(400, "the body is not JSON")
    where = ".".join(str(part)[:50] for part in first["loc"][1:])
    is_too_large = first["type"] in ("too_long", "string_too_long")
    message = first["msg"]
    if first["type"] == "string_pattern_mismatch":
        message = "expected one line of text"
    return _error(413 if is_too_large else 422, f"{where}: {message}" if where else message)


async def _failed(request: Request, error: Any) -> Response:
    return _error(error.status_code, f"{error.detail}", error.headers)


async def _broken(request: Request, error: Any) -> Response:
    return _error(500, "a bug of the server; its standard error has the traceback")


class Gate:
    """What holds for every request before the application sees it: its host, the size of its body,
    the time that it takes, and that its sender still waits.

    Args:
        app: the application.
        service: its limits and metrics are used.
        loopback_only: see `make_app`.
    """

    def __init__(self, app: ASGIApp, service: Service, loopback_only: bool):
        self._app = app
        self._service = service
        self._loopback_only = loopback_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def noting_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message["headers"], *HEADERS]
            await send(message)

        try:
            async with asyncio.timeout(self._service.limits.request_s):
                self._check_host(scope)
                body = await self._read(scope, receive)
                await self._answer(scope, receive, noting_send, body)
        except (RefusedError, TimeoutError, asyncio.CancelledError) as error:
            if not isinstance(error, RefusedError):
                error = RefusedError(503, "it took too long; ask again later", 10)
            if not status:
                response = await _refused(Request(scope), error)
                if error.status in (400, 408, 413):  # the body may still be on its way
                    response.headers["connection"] = "close"
                await response(scope, receive, noting_send)
        finally:
            path = scope["path"] if scope["path"] in ROUTES else "other"
            self._service.metrics.requests.labels(path, status).inc()
            self._service.metrics.seconds.labels(path).observe(time.monotonic() - began)

    def _check_host(self, scope: Scope) -> None:
        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        if self._loopback_only and not _LOOPBACK.fullmatch(host):
            raise RefusedError(400, "the header Host does not name this machine")

    async def _read(self, scope: Scope, receive: Receive) -> bytes:
        most, body, size = self._service.limits.max_body, bytearray(), 0
        lengths = [int(value) for name, value in scope["headers"] if name == b"content-length"]
        # A body that is a little too large is read to its end: most clients look for an answer only
        # when they have sent all.
        is_hopeless = max(lengths, default=0) > LINGER * most
        try:
            async with asyncio.timeout(self._service.limits.body_s):
                more = not is_hopeless
                while more and size <= LINGER * most:
                    message = await receive()
                    size += len(message.get("body", b""))
                    if size <= most:
                        body += message.get("body", b"")
                    more = message.get("more_body", False)
        except TimeoutError:
            raise RefusedError(408, "the body did not arrive in time") from None
        if is_hopeless or size > most:
            raise RefusedError(413, f"the body has more than {most:,} bytes; send less at a time")
        return bytes(body)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> None:
        """Call the application; cancel it when the sender goes away."""
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return messages.pop() if messages else await receive()

        async def disconnected() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        app = asyncio.ensure_future(self._app(scope, replay, send))
        gone = asyncio.ensure_future(disconnected())
        try:
            await asyncio.wait((app, gone), return_when=asyncio.FIRST_COMPLETED)
            if app.done():
                app.result()
        finally:
            app.cancel()
            gone.cancel()
            await asyncio.wait((app, gone))
