"""The server: its socket, limits of connections, and a graceful stop."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import socket
import time
from http import HTTPStatus
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from shapeshift._system.errors import ShapeshiftError

from .app import HEADERS, make_app
from .limits import Limits
from .service import Service

_LINGER_S = 2.0
"""How long a connection is read after a refusal."""


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address and does not listen yet.

    Raises:
        ShapeshiftError: the address does not exist or is in use.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, UnicodeError) as error:
        taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        raise ShapeshiftError(
            f"cannot serve at {host}, port {port}: {getattr(error, 'strerror', None) or error}"
            + "; give another --port (0: a free one)" * taken
        ) from error
    return listener


def is_loopback(listener: socket.socket) -> bool:
    """Return whether only this machine can reach it."""
    return ipaddress.ip_address(listener.getsockname()[0]).is_loopback


def address(listener: socket.socket) -> str:
    """Return the address of the page."""
    host, port, *_ = listener.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class Server(uvicorn.Server):
    """Serves until a signal. After the first signal, the server refuses new requests and finishes
    the queue, for at most `Limits.request_s`; after a second one it ends at once.

    Attributes:
        received: the first signal.
    """

    def __init__(self, service: Service, listener: socket.socket):
        own = {"limits": service.limits, "refused": set()}
        protocol = type("Protocol", (_Protocol,), own)
        super().__init__(
            uvicorn.Config(
                make_app(service, loopback_only=is_loopback(listener)),
                http=protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=int(service.limits.request_s),
                timeout_graceful_shutdown=5,
            )
        )
        self.received: int | None = None
        self._service = service
        listener.listen()  # from now on, connections wait for an answer
        self._listener = listener
        self._drain_until = 0.0

    def serve_until_signal(self) -> bool:
        """Serve until a signal; return whether the last batch has finished."""
        self.run(sockets=[self._listener])
        return self._service.batcher.is_idle()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start to stop at the first signal, and end at once at the second."""
        if self.received is not None:
            self.should_exit = self.force_exit = True
            return
        self.received = sig
        self._drain_until = time.monotonic() + self._service.limits.request_s
        self._service.draining = True

    async def on_tick(self, counter: int) -> bool:
        """Return whether to end; uvicorn calls this ten times a second."""
        batcher = self._service.batcher
        if self._service.draining and (batcher.is_idle() or time.monotonic() > self._drain_until):
            batcher.close()
            return True
        return await super().on_tick(counter)


class _Protocol(H11Protocol):
    """Closes a connection whose client does not send the head of a request in time, or does not
    read the response. Refuses what is not HTTP, and connections above the limit."""

    limits: Limits
    refused: set[_Protocol]
    _head_timer: asyncio.TimerHandle | None = None
    _reader_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            message = "there are too many connections; ask again later"
            self._refuse(503, message, (b"retry-after", b"1"))
        else:
            self._watch_head()

    def data_received(self, data: bytes) -> None:
        if self not in self.refused:
            super().data_received(data)
            self._watch_head()

    def send_400_response(self, msg: str) -> None:
        """Refuse data that is not HTTP, in JSON like all refusals."""
        self._refuse(400, "the request is not HTTP/1.1")

    def _refuse(self, status: int, message: str, *headers: tuple[bytes, bytes]) -> None:
        """Send a refusal, then close. What the client still sends is read and discarded for a
        while: a connection that is closed with unread data is reset, and loses the answer."""
        responding = self.cycle is not None and self.cycle.response_started
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.connections.discard(self)
        if (responding and not self.cycle.response_complete) or (
            len(self.refused) >= self.limits.max_connections
        ):
            self.transport.abort()
            return
        body = json.dumps({"error": message}).encode()
        own = {b"content-type": b"application/json", b"content-length": b"%d" % len(body)}
        lines = [*own.items(), (b"connection", b"close"), *headers, *HEADERS]
        head = b"HTTP/1.1 %d %s\r\n" % (status, HTTPStatus(status).phrase.encode())
        head += b"".join(b"%s: %s\r\n" % line for line in lines)
        self.transport.write(head + b"\r\n" + body)
        self.transport.write_eof()
        self.refused.add(self)
        _stop(self._head_timer)
        self._head_timer = self.loop.call_later(_LINGER_S, self.transport.close)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reader_timer = self.loop.call_later(self.limits.arrival_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        _stop(self._reader_timer)

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.refused.discard(self)
        _stop(self._head_timer)
        _stop(self._reader_timer)

    def _watch_head(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:
            _stop(self._head_timer)
            self._head_timer = None
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self.limits.arrival_s, self.transport.abort)


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
