"""An S3 on 127.0.0.1 for tests: moto's server in this process, and a bucket of its own for each test."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Any
from uuid import uuid4

import pytest
import s3fs
from aiobotocore.client import AioBaseClient
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

SECRET = "ACQUIT-S3-SECRET"


class _Quiet(WSGIRequestHandler):
    def log(self, *_: object) -> None:
        pass


class Fault(Enum):
    """What goes wrong with one request."""

    LOST_ANSWER = "it is carried out, and the answer is lost"
    LOST_REQUEST = "it is lost on its way"
    BUSY = "503, and nothing is done"
    CONFLICT = "409, and nothing is done"


_REFUSALS = {
    Fault.BUSY: ("503 Service Unavailable", "ServiceUnavailable"),
    Fault.CONFLICT: ("409 Conflict", "ConditionalRequestConflict"),
}


class Server:
    """moto behind a door where things go wrong: `faults` are for the next requests of `method`, one each; None for a
    request where nothing does."""

    def __init__(self) -> None:
        self.method = "PUT"
        self.faults: list[Fault | None] = []
        self.endpoint = ""
        self.conditions = True
        """Whether it looks at them: False is a store of before conditional writes."""
        self.page: bytes | None = None
        """What is answered to everything, if anything: then it is no S3."""
        self._moto = DomainDispatcherApplication(create_backend_app)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if self.page is not None:
            start_response("200 OK", [("Content-Type", "text/html")])
            return [self.page]
        if not self.conditions:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        fault = self.faults.pop(0) if self.faults and environ["REQUEST_METHOD"] == self.method else None
        if fault in _REFUSALS:
            status, code = _REFUSALS[fault]
            start_response(status, [("Content-Type", "application/xml")])
            return [f"<Error><Code>{code}</Code><Message>{fault.value}</Message></Error>".encode()]
        if fault is None:
            return self._moto(environ, start_response)
        if fault is Fault.LOST_ANSWER:
            list(self._moto(environ, lambda *_: None))
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        raise ConnectionAbortedError


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """Serve on a free port of 127.0.0.1."""
    application = Server()
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=_Quiet)
    application.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield application
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def point_to(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    """Have botocore find `endpoint` and made-up credentials, and nothing of this machine's own."""
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "ACQUIT-S3-KEY",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_EC2_METADATA_DISABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    # An instance keeps the endpoint of when it was made.
    s3fs.S3FileSystem.clear_instance_cache()


def make_bucket() -> str:
    """A fresh bucket's name."""
    name = f"bucket-{uuid4().hex[:12]}"
    s3fs.S3FileSystem().mkdir(name)
    return name


class Requests:
    """Counts the requests of this process by verb, from when it is made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: dict[str, int] = {}
        real = AioBaseClient._make_api_call

        async def counted(client: AioBaseClient, operation: str, arguments: Any) -> Any:
            self.counts[operation] = self.counts.get(operation, 0) + 1
            return await real(client, operation, arguments)

        monkeypatch.setattr(AioBaseClient, "_make_api_call", counted)

    def taken(self) -> dict[str, int]:
        """The counts since the last time."""
        counts, self.counts = self.counts, {}
        return counts
