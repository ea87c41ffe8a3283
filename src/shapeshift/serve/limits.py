"""Limits of the server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of the server.

    Attributes:
        max_body: maximum size of a request's body, in bytes.
        max_waiting: maximum number of sentences in the queue; a sentence counts once for each run.
        max_connections: maximum number of open connections.
        batch_tokens: maximum size of a batch: sentences × subwords of the longest one.
        arrival_s: seconds within which the head of a request and its body must arrive, and within
            which a client must go on reading the response.
        request_s: seconds for a request after its head has arrived; and, after a signal, for the
            sentences in the queue.
    """

    max_body: int = 256 * 1024
    max_waiting: int = 512
    max_connections: int = 256
    batch_tokens: int = 1024
    arrival_s: float = 10.0
    request_s: float = 30.0
