"""Our own broker as one of those that we did not write, so that the table can compare."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from acquit.demo.children import Children
from tests.interop.foreign import ATTEMPTS_MAX, GRAVES, PASSWORD, THRICE, USERNAME, Capabilities, ForeignBroker
from tests.support.endpoint import BrokerProcess

CONFIG = f"""
[security]
anonymous = "never"

[users.{USERNAME}]
password = "{PASSWORD}"

[[address]]
match = "#{THRICE}"
max_delivery_attempts = {ATTEMPTS_MAX}
dead_letter_address = "{GRAVES}"
"""


class Acquit(ForeignBroker):
    name = "acquit"
    can = Capabilities(
        acknowledgement="applied",
        altered="",
        rejected="dead letter",
        rejected_reason_kept=True,
        own_condition="as any",
        released_place="its old place",
        modified="again, count 0",
        attempts="dead letter",
        undeliverable_here="another receiver",
        modified_annotations=True,
        drain=True,
        echo=True,
        available=True,
        login="SCRAM-SHA-256, PLAIN",
        non_persistent_kept=True,
        transactions=True,
        transacted_reject="dead letter",
        transacted_release="again, count 0",
        transacted_modify="again, count 1",
        rolled_back_too_often="dead letter",
        rolled_back="in order, count 1",
        survives_kill=True,
        kill_counts=True,
        commit_without_answer="asked",
        # RMQ: test_foreign_grants
        mode_second="granted",
        pre_settled=True,
        default_outcome=True,
        counts_failed=True,
        counts_released=False,
        counts_lost_connection="yes",
        first_acquirer_kept=True,
        drops_duplicates=True,
        browse=True,
        selector=True,
        no_local=True,
        unknown_address="makes a queue",
        temporary_node=True,
        anonymous_terminus=True,
        topic=True,
        durable_subscription=True,
        shared_subscription=True,
        resumes=True,
        kept="unsettled-state",
        attached_again="with the broker's map; the delivery is resumed; the message is kept for it",
        sent_again="accepted, and there once",
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "acquit.toml").write_text(CONFIG, encoding="utf-8")
        self._children = Children(folder / "logs")
        self._broker = BrokerProcess(
            self._children, folder / "data", folder / "endpoint", config=folder / "acquit.toml"
        )
        self._runs = False

    @property
    def running(self) -> bool:
        return self._runs

    def start(self) -> None:
        self._broker.start(self.port)
        self._runs = True
        self.port = int(self._broker.url.rpartition(":")[2])

    def stop(self) -> None:
        if self._runs:
            self._runs = False
            assert self._broker.stop() == 0, "acquit serve did not end in order"

    def kill(self) -> None:
        self._runs = False
        self._broker.kill()

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, where: TracebackType | None
    ) -> None:
        with self._children:
            super().__exit__(kind, why, where)

    def queue(self, name: str, *, max_delivery_attempts: int = 0, dead_letter: str | None = None) -> str:
        limited = (max_delivery_attempts, dead_letter) == (ATTEMPTS_MAX, GRAVES) and name.endswith(THRICE)
        assert limited or (max_delivery_attempts, dead_letter) == (0, None), "what CONFIG does not say"
        return name

    def topic(self, name: str) -> str:
        return name
