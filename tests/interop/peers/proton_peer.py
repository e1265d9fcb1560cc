"""AMQP 1.0 by python-qpid-proton, driven by lines of JSON: see README.md beside this file."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import threading
from typing import Any

import proton
from proton import (
    UNDESCRIBED,
    Array,
    Condition,
    Data,
    Delivery,
    Described,
    Endpoint,
    Link,
    Message,
    SSLDomain,
    symbol,
    timestamp,
    ulong,
)
from proton.handlers import MessagingHandler
from proton.reactor import (
    ApplicationEvent,
    Container,
    DurableSubscription,
    EventInjector,
    Filter,
    LinkOption,
    Selector,
)

BODY_BYTES_SHOWN = 4096
OUTCOMES = {
    "accepted": Delivery.ACCEPTED,
    "rejected": Delivery.REJECTED,
    "released": Delivery.RELEASED,
    "modified": Delivery.MODIFIED,
}
NAMES = {state: name for name, state in OUTCOMES.items()}
STATES = OUTCOMES | {"received": Delivery.RECEIVED}
PROPERTIES = {
    "to": "address",
    "reply_to": "reply_to",
    "correlation_id": "correlation_id",
    "group_id": "group_id",
    "group_sequence": "group_sequence",
}
"""Fields of a message's properties, and what proton calls them."""
DISTRIBUTION = {"copy": proton.Terminus.DIST_MODE_COPY, "move": proton.Terminus.DIST_MODE_MOVE}


def report(event: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
    sys.stdout.flush()


def described(condition: Condition | None) -> dict[str, object]:
    return {} if condition is None else {"condition": condition.name, "description": condition.description}


def plain(values: dict[Any, Any] | None) -> dict[str, object]:
    """Texts and numbers of a map; the tests look at nothing else."""
    return {str(key): value for key, value in (values or {}).items() if isinstance(value, str | int | float | bool)}


def body_to_proton(body: dict[str, Any] | None) -> object:
    if body is None:
        return None
    return body["value"] if "value" in body else base64.b64decode(body["data"])


def body_to_json(message: Message) -> dict[str, object]:
    body = message.body
    if isinstance(body, memoryview):
        body = bytes(body)
    if not message.inferred or not isinstance(body, bytes):
        return {"value": body}
    if len(body) <= BODY_BYTES_SHOWN:
        return {"data": base64.b64encode(body).decode()}
    return {"data_bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}


DISTRIBUTION_NAMES = {mode: name for name, mode in DISTRIBUTION.items()}


class Modes(LinkOption):
    """What a command says of a link, put on it before it attaches."""

    def __init__(self, command: dict[str, Any]) -> None:
        self._command = command

    def apply(self, link: Link) -> None:
        terminus = link.target if link.is_sender else link.source
        if capabilities := self._command.get("capabilities"):
            terminus.capabilities.put_object(Array(UNDESCRIBED, Data.SYMBOL, *map(symbol, capabilities)))
        if lifetime := self._command.get("lifetime"):
            properties = {symbol("lifetime-policy"): Described(symbol(lifetime), [])}
            terminus.properties.put_dict(properties)
        if self._command.get("dynamic"):
            terminus.dynamic = True
        if properties := self._command.get("properties"):
            link.properties = {symbol(key): value for key, value in properties.items()}
        if (mode := self._command.get("snd_settle_mode")) is not None:
            link.snd_settle_mode = mode
        if (mode := self._command.get("rcv_settle_mode")) is not None:
            link.rcv_settle_mode = mode
        if (mode := self._command.get("distribution_mode")) is not None:
            link.source.distribution_mode = DISTRIBUTION[mode]


def receiver_options(command: dict[str, Any]) -> list[LinkOption]:
    """The options that proton itself has for what a command says of a receiver."""
    options: list[LinkOption] = [Modes(command)]
    if command.get("selector") is not None:
        options.append(Selector(command["selector"]))
    if command.get("no_local"):
        options.append(Filter({symbol("no-local"): Described(symbol("apache.org:no-local-filter:list"), [])}))
    if command.get("durable_subscription"):
        options.append(DurableSubscription())
    return options


def objects(data: Data) -> list[str]:
    """The symbols of a capabilities field, which is one symbol or an array of them; the keys of a map."""
    data.rewind()
    found = data.get_object() if data.next() is not None else None
    if found is None:
        return []
    if isinstance(found, Array):
        return [str(element) for element in found.elements]
    return [str(found)] if isinstance(found, str) else [str(key) for key in found]


class Peer(MessagingHandler):
    def __init__(self, injector: EventInjector) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=True)
        self._injector = injector
        self._container: Any = None
        self._connection: Any = None
        self._connected = False
        self._leaving = False
        self._sessions: dict[str, Any] = {}
        self._links: dict[str, Any] = {}
        self._received: dict[str, list[Any]] = {}
        self._sent: dict[str, int] = {}
        self._outgoing: dict[tuple[str, int], Any] = {}
        self._numbers: dict[tuple[str, object], int] = {}
        self._serving: Any = None
        self._serve_options: dict[str, Any] = {}

    # ---- events

    def on_start(self, event: Any) -> None:
        self._container = event.container
        event.container.selectable(self._injector)

    def on_connection_bound(self, event: Any) -> None:
        if self._serving is not None:
            if (milliseconds := self._serve_options.get("idle_time_out")) is not None:
                event.transport.idle_timeout = milliseconds / 1000
            if (size := self._serve_options.get("max_frame_size")) is not None:
                event.transport.max_frame_size = size

    def on_connection_opened(self, event: Any) -> None:
        self._connection = event.connection
        self._connected = True
        report(
            "connection_open",
            container_id=event.connection.remote_container,
            max_frame_size=event.transport.remote_max_frame_size,
            idle_time_out=int(event.transport.remote_idle_timeout * 1000),
        )

    def on_connection_error(self, event: Any) -> None:
        self._connection_closed(event.connection.remote_condition)

    def on_connection_closed(self, event: Any) -> None:
        self._connection_closed(None)

    def _connection_closed(self, condition: Condition | None) -> None:
        if self._leaving:
            self._left()
        else:
            report("connection_close", **described(condition))

    def _left(self) -> None:
        self._connection = None
        self._leaving = False
        report("reset")

    def on_transport_error(self, event: Any) -> None:
        report("disconnected", **described(event.transport.condition))

    def on_disconnected(self, event: Any) -> None:
        if event.connection == self._connection:
            self._connected = False
            report("disconnected")

    def on_session_opening(self, event: Any) -> None:
        self._sessions["default"] = event.session
        event.session.open()

    def on_session_error(self, event: Any) -> None:
        self._session_closed(event, event.session.remote_condition)

    def on_session_closed(self, event: Any) -> None:
        self._session_closed(event, None)

    def _session_closed(self, event: Any, condition: Condition | None) -> None:
        name = next((name for name, session in self._sessions.items() if session == event.session), None)
        report("session_close", session=name, **described(condition))

    def on_link_opening(self, event: Any) -> None:
        link = event.link
        # As a server: answer with the terminus and the modes that were asked for.
        link.source.copy(link.remote_source)
        link.target.copy(link.remote_target)
        link.snd_settle_mode = link.remote_snd_settle_mode
        link.rcv_settle_mode = link.remote_rcv_settle_mode
        address = link.source.address if link.is_sender else link.target.address
        condition = self._serve_options.get("refuse", {}).get(address)
        if condition is not None:
            # Refused (2.6.3): an attach without the terminus, and a detach with the error.
            # proton writes the detach in a later turn of its loop only.
            (link.source if link.is_sender else link.target).type = proton.Terminus.UNSPECIFIED
            self._links[link.name] = link
            command = {"do": "detach", "link": link.name, "condition": condition, "description": "refused by the test"}
            self._injector.trigger(ApplicationEvent("command", subject=command))
        link.open()

    def on_link_opened(self, event: Any) -> None:
        link = event.link
        self._links[link.name] = link
        report(
            "link_open",
            link=link.name,
            source=link.remote_source.address,
            target=link.remote_target.address,
            snd_settle_mode=link.remote_snd_settle_mode,
            rcv_settle_mode=link.remote_rcv_settle_mode,
            max_message_size=link.remote_max_message_size,
            distribution_mode=DISTRIBUTION_NAMES.get(link.remote_source.distribution_mode),
            **self._terminus(link),
        )

    @staticmethod
    def _terminus(link: Link) -> dict[str, object]:
        """What the other side says of its end of the link."""
        terminus = link.remote_target if link.is_sender else link.remote_source
        return {
            "dynamic": terminus.dynamic,
            "capabilities": objects(terminus.capabilities),
            "filters": objects(terminus.filter),
            "durability": int(terminus.durability),
            "node": terminus.type != proton.Terminus.UNSPECIFIED,
        }

    def on_link_error(self, event: Any) -> None:
        report("link_close", link=event.link.name, **described(event.link.remote_condition))

    def on_link_closed(self, event: Any) -> None:
        report("link_close", link=event.link.name)

    def on_link_remote_detach(self, event: Any) -> None:
        # Detached, not closed: by us, or by the broker, which may say why.
        report("link_detach", link=event.link.name, **described(event.link.remote_condition))
        event.link.detach()
        event.link.free()

    def on_link_flow(self, event: Any) -> None:
        link = event.link
        if link.is_sender:
            drain = link.drain_mode
            report("credit", link=link.name, credit=link.credit, drain=drain)
            if drain:
                link.drained()
        elif link.drain_mode and not link.credit:
            link.drain_mode = False
            report("drained", link=link.name)

    def on_message(self, event: Any) -> None:
        link, delivery, message = event.link, event.delivery, event.message
        received = self._received.setdefault(link.name, [])
        delivery.number = len(received)
        assert delivery.tag.isascii()  # it fails to read a tag that is no text
        report(
            "message",
            link=link.name,
            delivery=len(received),
            id=message.id,
            body=body_to_json(message),
            durable=message.durable,
            subject=message.subject,
            delivery_count=message.delivery_count,
            first_acquirer=message.first_acquirer,
            annotations=plain(message.annotations),
            application_properties=plain(message.properties),
            settled=delivery.settled,
            group_id=message.group_id,
            priority=message.priority,
            to=message.address,
            reply_to=message.reply_to,
            correlation_id=message.correlation_id,
        )
        received.append(delivery)

    def on_delivery(self, event: Any) -> None:
        delivery, link = event.delivery, event.link
        if link.is_sender and delivery.updated and delivery.remote_state in NAMES:
            remote = delivery.remote
            number = self._numbers[(link.name, delivery.tag)]
            if delivery.settled:
                # proton answers no drain while a settled delivery is referred to.
                self._outgoing.pop((link.name, number), None)
            report(
                "outcome",
                link=link.name,
                delivery=number,
                outcome=NAMES[delivery.remote_state],
                settled=delivery.settled,
                failed=remote.failed,
                undeliverable=remote.undeliverable,
                annotations=plain(remote.annotations),
                **described(remote.condition),
            )

    def on_settled(self, event: Any) -> None:
        if event.link.is_receiver:
            delivery = event.delivery
            number = delivery.number
            delivery.settle()
            report("settled", link=event.link.name, delivery=number)

    # ---- commands

    def on_command(self, event: Any) -> None:
        command = event.subject
        getattr(self, f"do_{command['do']}")(self._container, command)

    def on_end_of_input(self, event: Any) -> None:
        self._container.stop()

    def do_connect(self, container: Container, command: dict[str, Any]) -> None:
        options: dict[str, Any] = {"allow_insecure_mechs": True}
        if not command.get("reconnect"):
            options["reconnect"] = False
        if (milliseconds := command.get("idle_time_out")) is not None:
            options["heartbeat"] = milliseconds / 1000
        for name in ("user", "password", "container_id", "max_frame_size"):
            if command.get(name) is not None:
                options[name] = command[name]
        if mechanisms := command.get("mechanisms"):
            options["allowed_mechs"] = " ".join(mechanisms)
        scheme = "amqp"
        if authority := command.get("authority"):
            scheme = "amqps"
            options["sni"] = "localhost"  # proton looks at the names of a certificate only, not at its addresses
            domain = options["ssl_domain"] = SSLDomain(SSLDomain.MODE_CLIENT)
            domain.set_trusted_ca_db(authority)
            domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
            if certificate := command.get("certificate"):
                domain.set_credentials(certificate, certificate, None)
        self._connection = container.connect(f"{scheme}://127.0.0.1:{command['port']}", **options)
        self._open_session("default")

    def do_reset(self, container: Container, command: dict[str, Any]) -> None:
        connection = self._connection
        open_both = Endpoint.LOCAL_ACTIVE | Endpoint.REMOTE_ACTIVE
        if connection is not None and self._connected and connection.state == open_both:
            self._leaving = True
            connection.close()
        else:
            self._left()

    def do_listen(self, container: Container, command: dict[str, Any]) -> None:
        self._serve_options = command
        self._serving = container.listen("amqp://127.0.0.1:0")
        report("listening", port=self._serving._selectable._delegate.getsockname()[1])

    def _open_session(self, name: str) -> None:
        session = self._connection.session()
        session.open()
        self._sessions[name] = session

    def do_session(self, container: Container, command: dict[str, Any]) -> None:
        self._open_session(command["session"])

    def do_sender(self, container: Container, command: dict[str, Any]) -> None:
        session = self._sessions[command.get("session", "default")]
        self._sent[command["link"]] = 0
        self._links[command["link"]] = container.create_sender(
            session, command["address"], name=command["link"], options=Modes(command)
        )

    def do_receiver(self, container: Container, command: dict[str, Any]) -> None:
        session = self._sessions[command.get("session", "default")]
        self._received[command["link"]] = []
        receiver = container.create_receiver(
            session,
            command["address"],
            target=command.get("target"),
            name=command["link"],
            options=receiver_options(command),
        )
        self._links[command["link"]] = receiver
        if credit := command.get("credit"):
            receiver.flow(credit)

    def do_send(self, container: Container, command: dict[str, Any]) -> None:
        link = self._links[command["link"]]
        for given in command["messages"]:
            body = given.get("body")
            message = Message(
                id=given.get("id"),
                durable=given.get("durable", False),
                subject=given.get("subject"),
                properties=given.get("application_properties"),
                body=body_to_proton(body),
                annotations=self._annotations(given),
                ttl=given.get("ttl_s", 0),
                priority=given.get("priority", Message.DEFAULT_PRIORITY),
                **{name: given[key] for key, name in PROPERTIES.items() if key in given},
            )
            message.inferred = body is not None and "data" in body
            number = self._sent.get(link.name, 0)
            self._sent[link.name] = number + 1
            tag = str(number)
            self._numbers[(link.name, tag)] = number
            self._outgoing[(link.name, number)] = link.send(message, tag=tag)

    @staticmethod
    def _annotations(given: dict[str, Any]) -> dict[Any, Any] | None:
        annotations = {symbol(key): value for key, value in given.get("annotations", {}).items()}
        if "deliver_after_ms" in given:
            annotations[symbol("x-opt-delivery-delay")] = ulong(given["deliver_after_ms"])
        if "deliver_at_ms" in given:
            annotations[symbol("x-opt-delivery-time")] = timestamp(given["deliver_at_ms"])
        return annotations or None

    def do_confirm(self, container: Container, command: dict[str, Any]) -> None:
        for number in command["deliveries"]:
            self._outgoing.pop((command["link"], number)).settle()

    def do_settle(self, container: Container, command: dict[str, Any]) -> None:
        for number in command["deliveries"]:
            delivery = self._received[command["link"]][number]
            local = delivery.local
            if condition := command.get("condition"):
                local.condition = Condition(condition, command.get("description"))
            local.failed = bool(command.get("failed"))
            local.undeliverable = bool(command.get("undeliverable"))
            if annotations := command.get("annotations"):
                local.annotations = {symbol(key): value for key, value in annotations.items()}
            if "outcome" in command:
                delivery.update(STATES[command["outcome"]])
            if command.get("settled", True):
                delivery.settle()

    def do_state(self, container: Container, command: dict[str, Any]) -> None:
        number = command["delivery"]
        delivery = self._received[command["link"]][number]
        report(
            "state",
            link=command["link"],
            delivery=number,
            outcome=NAMES.get(delivery.remote_state),
            failed=delivery.remote.failed,
            settled=delivery.settled,
        )

    def do_credit(self, container: Container, command: dict[str, Any]) -> None:
        self._links[command["link"]].flow(command["credit"])

    def do_drain(self, container: Container, command: dict[str, Any]) -> None:
        self._links[command["link"]].drain(0)

    def do_detach(self, container: Container, command: dict[str, Any]) -> None:
        link = self._links[command["link"]]
        if command.get("closed", True):
            self._shut(link, command)
        else:
            link.detach()

    def do_end(self, container: Container, command: dict[str, Any]) -> None:
        self._shut(self._sessions[command.get("session", "default")], command)

    def do_close(self, container: Container, command: dict[str, Any]) -> None:
        self._shut(self._connection, command)

    @staticmethod
    def _shut(endpoint: Endpoint, command: dict[str, Any]) -> None:
        if condition := command.get("condition"):
            endpoint.condition = Condition(condition, command.get("description"))
        endpoint.close()


def main() -> None:
    injector = EventInjector()

    def read() -> None:
        for line in sys.stdin:
            injector.trigger(ApplicationEvent("command", subject=json.loads(line)))
        injector.trigger(ApplicationEvent("end_of_input"))

    threading.Thread(target=read, daemon=True).start()
    Container(Peer(injector)).run()


if __name__ == "__main__":
    main()
