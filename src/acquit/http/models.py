"""The forms of what the HTTP interface takes and gives, as its OpenAPI document describes them.

What an operation gives is written as it is: a model of an answer describes it, and a test holds the answers to it.
Models of requests are checked. Values of AMQP have the form of `protocol.jsonform`.
"""

from __future__ import annotations

from typing import Any, Final, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from acquit.broker.admin.connection_operations import REASON_MAX
from acquit.broker.admin.survey_operations import ORDERS
from acquit.broker.admin.troubles import TROUBLES
from acquit.broker.inspect import QUEUE_COLUMNS, QueueSnapshot, TerminusSnapshot

ULONG_MAX: Final = (1 << 64) - 1


class CheckedModel(BaseModel):
    """The base of what is asked for: a name that it does not have is refused."""

    model_config = ConfigDict(extra="forbid")


class CheckedBody(CheckedModel):
    """The base of bodies, where a value has the type that JSON gives it: ``true`` is no number, nor is ``"5"``, and
    ``"no"`` is no truth value. In a query all are texts."""

    model_config = ConfigDict(strict=True)


class NamedQuery(CheckedModel):
    """The name, where the path cannot have it."""

    exact_name: str | None = Field(
        None,
        max_length=4096,
        description="The name, in place of that in the path, which is not looked at then: for `.` and `..`, which "
        "browsers take out of a path.",
    )


class BrokerOverview(BaseModel):
    """The broker as a whole."""

    model_config = ConfigDict(extra="allow")

    broker_id: str = Field(description="The uuid of the data folder.")
    last_sequence: int = Field(description="The highest sequence given to a message so far; 0 for none.")
    accepting: bool = Field(description="False while postings are refused because the disk is full.")
    warnings: list[str] = Field(description="What somebody should see to, and why.")


_HINTS: Final[dict[str, Any]] = {"depth": int, **get_type_hints(QueueSnapshot)}

_QUEUE_FIELDS: Final[dict[str, Any]] = {column: (_HINTS[column], ...) for column in QUEUE_COLUMNS} | {
    "dead_letters": (bool, Field(description="True where dead or expired letters go.")),
    "troubles": (
        list[str],
        Field(description=f"What somebody should see to: {', '.join(name for name, _ in TROUBLES)}."),
    ),
}
_TERMINUS_FIELDS: Final[dict[str, Any]] = {name: (hint, ...) for name, hint in get_type_hints(TerminusSnapshot).items()}

Queue: Final[type[BaseModel]] = create_model(
    "Queue",
    __config__=ConfigDict(extra="allow"),
    __doc__="A queue, a subscription or a topic.",
    **_QUEUE_FIELDS,
)


class QueuesQuery(CheckedModel):
    """The part of the list that is wanted."""

    sort: str = Field(
        "name",
        pattern=f"^({'|'.join(ORDERS)})$",
        description="The attribute that the queues are sorted by; `trouble`: how much they need somebody, and then how "
        "many messages are in them.",
        json_schema_extra={"enum": list(ORDERS)},
    )
    descending: bool = False
    contains: str = Field("", max_length=1024, description="Only those with this in their name.")
    dead_letters: bool = Field(False, description="True for only those where dead or expired letters go.")
    totals: bool = Field(False, description="True to have the sums over all of them, too.")
    offset: int = Field(0, ge=0, le=1 << 31)
    limit: int = Field(100, ge=1, le=1_000)


class QueuePage(BaseModel):
    """A page of the list of queues."""

    items: list[Queue]  # type: ignore[valid-type]  # made from the snapshot's columns
    total: int = Field(description="How many there are, of which this is a page.")
    totals: dict[str, int] = Field(description="Sums over all of these; nothing, where nobody asked for them.")
    warnings: list[str]


class NewQueue(CheckedBody):
    """The kind of what is to be made."""

    kind: Literal["queue", "topic"] = "queue"


class MadeNode(BaseModel):
    """The name of what was made."""

    name: str


class DeleteQuery(NamedQuery):
    """Conditions under which a queue is deleted."""

    if_unused: bool = Field(False, description="Only if no link uses it.")
    if_empty: bool = Field(False, description="Only if there is no message in it, nor in a subscription of it.")


class DeletedNode(BaseModel):
    """The messages and links that went with a queue or topic that was deleted."""

    messages: int
    links: int


class ChoiceBody(CheckedBody):
    """The messages that are meant; all, where nothing is said."""

    max: int | None = Field(None, ge=1, le=ULONG_MAX, description="So many at most.")
    selector: str | None = Field(None, description="Only those that this JMS selector takes.")
    sequences: list[int] | None = Field(None, max_length=10_000, description="Only these.")


class RedriveBody(ChoiceBody):
    """The dead letters that go back to where they came from."""

    dry_run: bool = Field(False, description="True to only say what would go where.")


class PauseBody(CheckedBody):
    """The side of a queue that is paused."""

    paused: Literal["none", "producers", "consumers", "both"]


class PausedSide(BaseModel):
    """The side of a queue that is paused now."""

    paused: str


class RedrivenCounts(BaseModel):
    """The numbers of dead letters that went back, or would, and of those that stay."""

    model_config = ConfigDict(extra="allow")

    redriven: int
    by_origin: dict[str, int]
    without_origin: int


class RowsQuery(CheckedModel):
    """The part of the list that is wanted."""

    after: int = Field(0, ge=0, le=ULONG_MAX, description="Only those with a higher id.")
    limit: int = Field(100, ge=1, le=1_000)


class LinksQuery(CheckedModel):
    """The links that are wanted."""

    after: str | None = Field(None, max_length=64, description="Only those behind this id.")
    limit: int = Field(100, ge=1, le=1_000)

    connection: int | None = Field(None, ge=0, le=ULONG_MAX, description="Only those of this connection.")
    node: str | None = Field(None, max_length=1024, description="Only those of this queue or topic.")


class LimitQuery(CheckedModel):
    """The length of the list that is wanted."""

    limit: int = Field(100, ge=1, le=1_000)


class ReasonQuery(CheckedModel):
    """The reason that the peer is told."""

    reason: str = Field("", max_length=REASON_MAX)


class ClosedConnection(BaseModel):
    """The confirmation that a connection is being closed."""

    closed: bool


class DetachedLink(BaseModel):
    """The confirmation that a link was detached."""

    detached: bool


class PurgedCount(BaseModel):
    """The number of messages that were removed."""

    purged: int


class MoveBody(CheckedBody):
    """The messages that are to be moved, and where."""

    to: str = Field(description="Another queue, made if its policy allows.")
    max: int | None = Field(None, ge=1, le=ULONG_MAX, description="So many at most.")
    selector: str | None = Field(None, description="Only those that this JMS selector takes.")
    sequences: list[int] | None = Field(None, max_length=10_000, description="Only these.")


class MovedCount(BaseModel):
    """The number of messages that were moved."""

    moved: int


class MessagesQuery(NamedQuery):
    """The part of the list that is wanted."""

    state: Literal["available", "acquired", "suspended", "scheduled", "all"] = "all"
    after: int = Field(0, ge=0, le=ULONG_MAX, description="Only those with a higher sequence.")
    limit: int = Field(100, ge=1, le=1_000)
    selector: str | None = Field(None, description="Only those that this JMS selector takes.")


class PageOfMessages(BaseModel):
    """A page of the messages of a queue, by sequence."""

    items: list[dict[str, Any]]
    next_after: int | None = Field(description="The `after` of the next page; null on the last one.")


class QueueTrend(BaseModel):
    """The last hours of a queue."""

    step_ms: int = Field(description="Milliseconds between two points, about.")
    attributeNames: list[str] = Field(description="The names of what each point has.")  # noqa: N815 - AMQP's word
    points: list[list[int]]


class OneMessageQuery(NamedQuery):
    """The message that is wanted."""

    sequence: int = Field(ge=1, le=ULONG_MAX)
    bytes_max: int = Field(1 << 20, ge=0, le=16 << 20, description="The content of a larger one is left out.")


class OneMessage(BaseModel):
    """A message in full."""

    model_config = ConfigDict(extra="allow")

    sequence: int
    state: str
    attempts: list[dict[str, Any]] = Field(description="The attempts that failed.")
    content: dict[str, Any] | None = Field(description="Its sections by name; null where it is too large to be shown.")


class HistoryQuery(CheckedModel):
    """The message that is asked about: one of these keys."""

    sequence: int | None = Field(None, ge=1, le=ULONG_MAX)
    message_id: str | None = None
    duplicate_id: str | None = None


class MessageHistory(BaseModel):
    """The story of a message, and of the copies that it came from and became."""

    model_config = ConfigDict(extra="allow")

    lives: list[dict[str, Any]]
    hidden: int = Field(description="Copies in queues that the user may not see.")
    complete: bool


class ScheduledQuery(NamedQuery):
    """The part of the list that is wanted."""

    after: int = Field(0, ge=0, le=ULONG_MAX, description="Only those with a higher sequence.")
    limit: int = Field(100, ge=1, le=1_000)


class RowPage(BaseModel):
    """A list."""

    model_config = ConfigDict(extra="allow")

    items: list[dict[str, Any]]


class CancelBody(CheckedBody):
    """The messages that are cancelled, of those that wait for their time: one of these keys."""

    sequence: int | None = Field(None, ge=0, le=ULONG_MAX)
    message_id: str | int | dict[str, str] | None = Field(
        None, description='A text, a number, {"uuid": "..."} or {"base64": "..."}.'
    )
    all: Literal[True] | None = None


class CancelledCount(BaseModel):
    """The number of messages that were cancelled."""

    cancelled: int


class FateOfTransaction(BaseModel):
    """The fate of a transaction."""

    fate: Literal["committed", "rolled-back", "unknown"]
    kept_ms: int = Field(description="Milliseconds for which that is remembered.")


Terminus: Final[type[BaseModel]] = create_model(
    "Terminus",
    __config__=ConfigDict(extra="allow"),
    __doc__="The terminus of a resumable link, which outlives it.",
    **_TERMINUS_FIELDS,
)


class TerminusPage(BaseModel):
    """The termini that outlive their links."""

    items: list[Terminus]  # type: ignore[valid-type]  # made from the snapshot's fields


class ReturnedCount(BaseModel):
    """The number of messages that went back to their queue."""

    returned: int


class ConfigurationChange(BaseModel):
    """A key whose value has changed."""

    key: str
    old: str
    new: str
    applies: str


class ConfigurationChanges(BaseModel):
    """The keys whose value differs from before."""

    changes: list[ConfigurationChange]


class MessageBody(CheckedBody):
    """A message that is to be posted, by its parts. Values of AMQP have the form of `--json`."""

    body: Any = Field(None, description='Text, or `{"base64": ...}` for octets, or any other value of AMQP.')
    durable: bool = True
    priority: int | None = Field(None, ge=0, le=255)
    ttl_ms: int | None = Field(None, ge=0, le=(1 << 32) - 1, description="Milliseconds for which it is live.")
    message_id: str | None = None
    correlation_id: str | None = None
    subject: str | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    reply_to: str | None = None
    to: str | None = None
    group_id: str | None = None
    annotations: dict[str, Any] | None = None
    application_properties: dict[str, Any] | None = None


class PublishedMessage(BaseModel):
    """The result of a posting."""

    queues: int = Field(description="The queues that it entered; of a topic one for each subscription that takes it.")
    duplicate: bool = Field(description="True where it was there before, and was not posted again.")


class RuleInForce(BaseModel):
    """A rule that matches an address."""

    match: str
    settings: dict[str, Any]
    source: Literal["operator", "configuration"]


class AddressInForce(BaseModel):
    """The policy in force at an address."""

    address: str
    settings: dict[str, Any]
    rules: list[RuleInForce] = Field(description="Of each setting, the first that has it counts.")


class SettingsBody(CheckedBody):
    """The settings that an address, or a pattern, is to have."""

    settings: dict[str, bool | int | float | str] = Field(
        description="In place of those that operators gave before. Without any, the configuration counts again."
    )


class GivenRule(BaseModel):
    """The rule that was given."""

    match: str
    settings: dict[str, Any]


class TakenRule(BaseModel):
    """The pattern of the rule that was taken back."""

    match: str


class MarksQuery(CheckedModel):
    """The part of the list that is wanted."""

    after: str = Field("", description="Only those with a higher id.")
    limit: int = Field(100, ge=1, le=1_000)


class ClosedSegment(BaseModel):
    """The segment of the journal that was closed."""

    closed: int
    """The number of the segment."""


class ProcessHealth(BaseModel):
    """The liveness of the process."""

    status: Literal["alive"]


class BrokerHealth(BaseModel):
    """The readiness of the broker to take messages."""

    ready: bool
    reasons: list[str]
