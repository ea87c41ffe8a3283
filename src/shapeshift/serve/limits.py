"""What a server takes, and how it refuses the rest."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What a server takes.

    Attributes:
        max_subwords: of a sentence, unless `decoding.max_source_length` is set.
        max_body: bytes of a request.
        max_waiting: sentences in the queue, one for each run that is to translate it.
        max_connections: open at a time.
        batch_tokens: size of a batch: sentences × subwords of the longest of them.
        arrival_s: for the head of a request to arrive, for its body, and for a client that does not
            read to go on.
        request_s: for the whole request, from the end of its head on; and after a signal, for what
            is in the queue.
    """

    max_subwords: int = 256
    max_body: int = 256 * 1024
    max_waiting: int = 512
    max_connections: int = 256
    batch_tokens: int = 1024
    arrival_s: float = 10.0
    request_s: float = 30.0


class RefusedError(Exception):
    """A request that is not served.

    Attributes:
        status: of HTTP.
        retry_after_s: when it may be served; None: never.
    """

    def __init__(self, status: int, message: str, retry_after_s: int | None = None):
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


class StoppingError(RefusedError):
    """A request that comes, or still waits, when the server ends."""

    def __init__(self) -> None:
        super().__init__(503, "the server is about to stop", 10)
