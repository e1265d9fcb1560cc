"""Apache Qpid Broker-J: `brokers/broker-j/src/BrokerJ.java` embeds it, `initial.json` beside it configures it."""

from __future__ import annotations

from tests.interop.foreign import Capabilities, JavaBroker
from tests.interop.java import BROKER_J, HERE


class BrokerJ(JavaBroker):
    name = "broker-j"
    program = BROKER_J
    main = "BrokerJ"
    arguments = (str(HERE / "brokers/broker-j/initial.json"),)
    can = Capabilities(
        acknowledgement="answered",
        altered="",
        rejected="again",
        rejected_reason_kept=False,
        own_condition="ends the connection",
        released_place="its old place",
        modified="again, count 0",
        attempts="dead letter",
        undeliverable_here="another receiver",
        modified_annotations=False,
        drain=True,
        echo=True,
        available=False,
        login="SCRAM-SHA-256, PLAIN",
        non_persistent_kept=True,
        transactions=True,
        transacted_reject="again, count 1",
        transacted_release="again, count 0",
        transacted_modify="again, count 1",
        rolled_back_too_often="dead letter",
        rolled_back="in order, count 1",
        survives_kill=True,
        kill_counts=False,
        commit_without_answer="in doubt",
        # RMQ: test_foreign_grants
        mode_second="granted",
        pre_settled=True,
        default_outcome=False,
        counts_failed=True,
        counts_released=False,
        counts_lost_connection="yes",
        first_acquirer_kept=False,
        drops_duplicates=False,
        browse=True,
        selector=True,
        no_local=True,
        unknown_address="refused",
        temporary_node=True,
        anonymous_terminus=True,
        topic=True,
        durable_subscription=True,
        shared_subscription=True,
        resumes=False,
        kept="configuration",
        attached_again="refused (amqp:not-implemented); others get the message",
        sent_again="in doubt, and there once",
    )
