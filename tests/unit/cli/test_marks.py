"""`acquit marks`."""

from __future__ import annotations

import struct

import acquit
from acquit.protocol.extensions import PLACE, SENDER_MARK
from tests.support.shell import Shell


def test_marks(shell: Shell) -> None:
    with acquit.Broker() as broker, acquit.connect(broker.url) as connection, connection.session() as session:
        assert shell("marks", "--url", broker.url).out == "no sender has a mark\n"
        sender = session.sender("orders", properties={SENDER_MARK: "query 7"})
        (row,) = shell("marks", "--url", broker.url, "--json").documents
        assert (row["name"], row["batch"], row["links"], row["moved_ms"]) == ("query 7", None, 1, None)
        place = struct.pack(">QQI", 3, 5, 9)
        sender.send(acquit.Message("x", durable=True, delivery_annotations={PLACE: place}), timeout=20)
        sender.close()
        (row,) = shell("marks", "--url", broker.url, "--json").documents
        assert (row["batch"], row["index_in_batch"], row["links"], row["user"]) == (3, 5, 0, None)
        assert row["sequence"] == 1 and row["moved_ms"] > 1_600_000_000_000
        assert "query 7" in shell("marks", "--url", broker.url).out
