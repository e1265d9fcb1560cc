"""A wire that a test can cut: bytes pass between a port of ours and the broker's until `cut` ends every connection.

Neither side hears more than the end of its socket, as when a machine is gone. New connections pass after a cut, unless
`closed` is set.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from types import TracebackType
from typing import Self


class Cable:
    """Use as a context manager. `url` is where clients connect; `port` may be changed when the broker moved."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.closed = False
        self._door = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._ends = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        return f"amqp://127.0.0.1:{self._door.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, where: TracebackType | None
    ) -> None:
        self._ends = True
        # Closing a listening socket does not wake its accept(): a connection does.
        with contextlib.suppress(OSError), socket.create_connection(self._door.getsockname()):
            pass
        self._threads[0].join()
        self._door.close()
        self.cut()
        for thread in self._threads:
            thread.join()

    def cut(self) -> None:
        """End every connection that passes now, on both sides."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            ours, _ = self._door.accept()
            if self._ends or self.closed:
                ours.close()
                if self._ends:
                    return
                continue
            try:
                theirs = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                ours.close()
                continue
            with self._lock:
                self._pairs.append((ours, theirs))
            thread = threading.Thread(target=_carry, args=(ours, theirs), daemon=True)
            self._threads.append(thread)
            thread.start()


def _carry(one: socket.socket, other: socket.socket) -> None:
    with one, other, selectors.DefaultSelector() as ready:
        ready.register(one, selectors.EVENT_READ, other)
        ready.register(other, selectors.EVENT_READ, one)
        with contextlib.suppress(OSError):
            while True:
                for key, _ in ready.select():
                    data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                    if not data:
                        return
                    key.data.sendall(data)
