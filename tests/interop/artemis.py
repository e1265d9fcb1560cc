"""Apache Artemis: `brokers/artemis/src/ArtemisBroker.java` embeds and configures it."""

from __future__ import annotations

from tests.interop.foreign import Capabilities, JavaBroker
from tests.interop.java import ARTEMIS


class Artemis(JavaBroker):
    name = "artemis"
    program = ARTEMIS
    main = "ArtemisBroker"
    can = Capabilities(
        acknowledgement="sent",
        altered="",
        rejected="dead letter",
        rejected_reason_kept=False,
        own_condition="as any",
        released_place="its old place",
        modified="again, count 0",
        attempts="dead letter",
        undeliverable_here="another receiver",
        modified_annotations=False,
        drain=True,
        echo=False,
        available=False,
        login="SCRAM-SHA-256, PLAIN",
        non_persistent_kept=True,
        transactions=True,
        transacted_reject="again, count 0",
        transacted_release="again, count 0",
        transacted_modify="again, count 0",
        rolled_back_too_often="dead letter",
        rolled_back="in order, count 1",
        survives_kill=True,
        kill_counts=False,
        commit_without_answer="in doubt",
        # RMQ: test_foreign_grants
        mode_second="not granted",
        pre_settled=True,
        default_outcome=False,
        counts_failed=True,
        counts_released=False,
        counts_lost_connection="sometimes",
        first_acquirer_kept=False,
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
        resumes=False,
        kept="unsettled-state",
        attached_again="without a map; others get the message",
        sent_again="accepted, and there twice",
    )
