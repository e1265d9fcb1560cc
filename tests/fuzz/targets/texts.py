"""Texts: what users, administrators and peers write by hand. Selectors, addresses, URLs, configuration, JSON."""

from __future__ import annotations

import json
from uuid import UUID

from acquit.broker.access.users import Verifier
from acquit.broker.access.users_file import format_users, parse_users
from acquit.broker.configuration import parse_options
from acquit.broker.links.filters import read_filters
from acquit.broker.nodes.addresses import (
    address_fault,
    is_pattern,
    match_words,
    matches,
    specificity,
    topic_fault,
)
from acquit.broker.nodes.subscription import Subscription, subscription_name
from acquit.broker.selector import compile_selector, fields_of_posting, subject_matches
from acquit.broker.selector.fields import Fields
from acquit.broker.selector.like import ANY, automaton, pattern_matcher
from acquit.cli.messages import compose
from acquit.client.reconnecting import Reconnect
from acquit.client.url import parse_url, parse_urls
from acquit.compat.qpid.messaging.address import LexError, ParseError, parse, quote
from acquit.compat.qpid.messaging.exceptions import InvalidOption, MalformedAddress
from acquit.compat.qpid.resolving import AttachPlan, plan
from acquit.compat.qpid.util import URL
from acquit.errors import ConfigurationError, DecodeError, EncodeError, SelectorError, StoreVersionUnsupported
from acquit.ledger.verify import Head
from acquit.protocol.codec import decode, encode
from acquit.protocol.jsonform import to_json
from acquit.protocol.message import Message
from acquit.protocol.types import Described, Symbol
from tests.fuzz.target import Reader, Target, as_text, repeated
from tests.fuzz.targets.values import ENCODED


def one_line(refused: Exception, length_max: int = 700) -> None:
    """What is refused is refused in one readable line."""
    line = str(refused)
    assert line.isprintable() and 0 < len(line) < length_max, line


SCALARS = (0, 1, -(2**63), 2**64 - 1, 0.0, -1.5, float("inf"), float("nan"), "", "10%x", True, False, object())
NAMES = ("a", "b", "c", "d", "b.c", "m.x-y", "$", "_", "q", "text", "colour", "flag")
FIELDS = (Fields(), *(Fields(dict.fromkeys(NAMES, value)) for value in SCALARS))


def selector(data: bytes) -> None:
    text = as_text(data)
    try:
        compiled = compile_selector(text)
    except SelectorError as refused:
        one_line(refused)
        assert refused.position is None or 0 <= refused.position <= len(text)
        raise
    for fields in FIELDS:
        assert type(compiled.matches(fields)) is bool


ASKED = ("JMSType", "JMSMessageID", "JMSCorrelationID", "amqp.to", "amqp.reply_to", "amqp.user_id", "JMSXGroupID")


def selector_fields(data: bytes) -> None:
    """What selectors see of a message of any bytes is what decoding it says."""
    fields = fields_of_posting(data, "q", durable=False, priority=4, expires_at_ms=0, size_bytes=len(data))
    for name in (*ASKED, "a", "key", "m.x-opt-a"):
        fields[name]
    try:
        message = Message.decode(data)
        subject, properties = message.subject, message.application_properties
    except DecodeError:
        return
    assert fields["JMSType"] == subject
    found = properties.get("a")
    assert type(found) is not str or isinstance(found, Symbol) or fields["a"] == found


def like(data: bytes) -> None:
    """The two tests of a pattern agree: by pieces, and by an automaton."""
    way = Reader(data)
    pattern = [ANY if character == "%" else character for character in as_text(way.block())]
    text = as_text(way.take(way.left))
    assert pattern_matcher(pattern)(text) == automaton(pattern)(text)


def slowly(pattern: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """Whether a pattern of words matches, as the page says it: ``*`` one word, ``#`` any number."""
    reached = {0}
    for word in (*words, None):
        for at in sorted(reached):
            while at < len(pattern) and pattern[at] == "#":
                at += 1
                reached.add(at)
        if word is None:
            return len(pattern) in reached
        reached = {at + 1 for at in reached if at < len(pattern) and pattern[at] in ("*", word)} | {
            at for at in reached if at < len(pattern) and pattern[at] == "#"
        }
    raise AssertionError


def address(data: bytes) -> None:
    """A pattern and an address: two matchers say what the page says."""
    pattern, _, name = as_text(data).partition("\0")
    for fault in (address_fault, topic_fault):
        line = fault(name.encode("utf-8", "replace").decode())
        assert line is None or line.isprintable()
    is_pattern(pattern)
    specificity(pattern)
    subscription_name(pattern)
    words = name.split(".")
    if not {"*", "#"} & {*words}:
        said = slowly(tuple(pattern.split(".")), tuple(words))
        assert matches(pattern, name) == match_words(pattern.split("."), words) == said
        compiled = subject_matches(pattern)
        assert compiled.matches(Fields(JMSType=name)) == said


def filters(data: bytes) -> None:
    asked, _ = decode(data)
    if isinstance(asked, dict):
        applied = read_filters({str(key): value for key, value in asked.items()}, browses=True)
        if applied.selector is not None:
            applied.selector.matches(Fields())
        encode(dict(applied.echo or {}))


def subscription(data: bytes) -> None:
    """As the journal keeps it."""
    found = Subscription.decode(data)
    again = Subscription.decode(found.encoded)
    assert (again.identity, again.shared, again.encoded) == (found.identity, found.shared, found.encoded)
    found.queue_name("address")


def qpid_address(data: bytes) -> None:
    text = as_text(data)
    fine = True
    try:
        name, _, _ = parse(text)
        assert parse(quote(name))[0] == name
    except (LexError, ParseError) as refused:
        fine = False
        one_line(refused, 300)
    for direction in ("sender", "receiver"):
        try:
            assert isinstance(plan(text, direction), AttachPlan)
            assert fine
        except (InvalidOption, MalformedAddress) as refused:
            one_line(refused)
            assert fine is isinstance(refused, InvalidOption)


def url(data: bytes) -> None:
    """A place to connect to. What is refused is refused without its password; what is taken comes back from what it
    says of itself."""
    text = as_text(data)
    secret = text.partition("://")[2].partition("@")[0].partition(":")[2]
    try:
        places = parse_urls(text, Reconnect())
    except ConfigurationError as refused:
        assert len(secret) < 8 or "@" not in text or "failover" in text or secret not in str(refused)
        raise
    for target in places.targets:
        assert target.host and 0 < target.port < 65_536
        assert parse_url(f"{'amqps' if target.tls else 'amqp'}://{target.where}").where == target.where


def qpid_url(data: bytes) -> None:
    found = URL(as_text(data))
    again = URL(str(found))
    assert (again.host, again.port) == (found.host, found.port)


def configuration(data: bytes) -> None:
    text = as_text(data)
    try:
        parse_options(text)
    except ConfigurationError as refused:
        assert str(refused)
        raise


def users(data: bytes) -> None:
    found = parse_users(as_text(data))
    assert parse_users(format_users(found)) == found


def verifier(data: bytes) -> None:
    found = Verifier.parse(as_text(data))
    assert Verifier.parse(str(found)) == found


def json_message(data: bytes) -> None:
    """A line of `acquit send --json-lines`."""
    message = compose(as_text(data))
    again = Message.decode(message.encode())
    json.dumps(to_json(again.application_properties))


def journal_head(data: bytes) -> None:
    found = Head.parse(as_text(data))
    assert Head.parse(str(found)) == found


WORDS = tuple(
    word.encode("utf-8", "surrogatepass")
    for word in (
        "AND OR NOT BETWEEN IN LIKE ESCAPE IS NULL TRUE FALSE a b.c m.x-y $ _ 'x' '' '%' '!' \"q\" 1 0 .5 1e3 0x1 9L"
        " ( ) , = <> < <= > >= + - * / % ! ; ' \" 9223372036854775808 é \x00"
    ).split()
)
PIECES = (b"a = ", b"(a) ", b"a = 1 OR ", b"((", b"- ", b"NOT ", b"'a''", b"1_", b"0x_", b"a.", b"m.a-", b"a IN (")
QPID_WORDS = tuple(
    word.encode()
    for word in (
        "create delete assert mode node link type durable name reliability selector filter descriptor value x-declare"
        " always never sender receiver browse consume queue topic unreliable True False None q a.b # * / ; : , { } [ ]"
        " 'x' '' \"y\" ' \" \\ \\x41 \\x \\u0041 \\u 1 -1 .5 1.5 9999999999999999999999 x-bindings x-subscribe timeout"
    ).split()
)
FILTERS: tuple[dict[str, object], ...] = (
    {Symbol("s"): Described(Symbol("apache.org:selector-filter:string"), "a = 1")},
    {Symbol("n"): Described(Symbol("apache.org:no-local-filter:list"), []), Symbol("t"): Described(1, "x")},
    {Symbol("p"): Described(Symbol("acquit:portion-filter:list"), [100, 4, 1])},
    {Symbol("t"): Described(Symbol("apache.org:legacy-amqp-topic-binding:string"), "a.*.#")},
)
VERIFIER = "SCRAM-SHA-256$4096:" + "QUFB" * 4 + "$" + "QUFB" * 10 + "QUE=:" + "QUFB" * 10 + "QUE="

DEEP = tuple(b"a = " + piece * depth for piece in (b"[", b"{a = ") for depth in (100, 300, 1_000, 4_000)) + repeated(
    (b"[a]\n", b"[[a]]\n", b"a.", b"[a.a", b"a = 1\n")
)


def deep_json() -> tuple[bytes, ...]:
    """Lists and objects in one another, whole, to every depth at which Python's own limit may be met."""
    depths = (100, 300, 450, 900, 5_000)
    return tuple(
        head * depth + b"1" + tail * depth
        for head, tail in ((b"[", b"]"), (b'{"a":', b"}"), (b'{"map": [[1, ', b"]]}"), (b'{"described": ["a", ', b"]}"))
        for depth in depths
    )


TARGETS = (
    Target(
        "selector",
        selector,
        ("broker.selector", "broker.selector.lexer", "broker.selector.parser", "broker.selector.closures"),
        (SelectorError,),
        (
            b"JMSPriority > 4 AND colour = 'red'",
            b"NOT (a BETWEEN 1 AND 2.5e3 OR b NOT IN ('x', 'it''s', -7)) AND c IS NOT NULL",
            b"text LIKE '10!%_%' ESCAPE '!' OR \"quoted \"\"name\"\"\" NOT LIKE '%a%b_'",
            b"-(a + 0x1F * 2L) / b - .5f % 3 <= +c AND TRUE <> flag",
            b"m.x-opt-a = 1 OR amqp.subject IS NULL AND (((d))) = 017",
            b"9223372036854775807 + a > -9223372036854775808 OR 0b11 = 0x1.8p1",
        ),
        steps=10_000,
        steps_per_byte=400,
        words=WORDS,
        long=repeated((*WORDS, *(word + b" " for word in WORDS), *PIECES)),
        length_max=500,
    ),
    Target("selector_fields", selector_fields, ("broker.selector.fields",), (), ENCODED, words=(b"key", b"\xa1\1a")),
    Target("like", like, ("broker.selector.like",), (), (b"\3a%bxayb", b"\5%a%b%cab")),
    Target(
        "address",
        address,
        ("broker.nodes.addresses", "broker.access.permissions", "broker.nodes.queues"),
        (SelectorError,),
        (b"a.*.#\0a.b.c", b"#.a.#.b\0a.b.a.b", b"plain\0plain", b"orders.#\0orders"),
        words=(b".", b"*", b"#", b"\0", b"::", b"#.#.", b"a."),
        length_max=300,
    ),
    Target(
        "filters",
        filters,
        ("broker.links.filters",),
        (DecodeError, SelectorError),
        tuple(encode(one) for one in FILTERS),
        length_max=500,
        steps_per_byte=400,
    ),
    Target(
        "subscription",
        subscription,
        ("broker.nodes.subscription", "broker.recovery"),
        (DecodeError, SelectorError, StoreVersionUnsupported, ValueError),
        (
            Subscription("n", "c", user="ada", filters=read_filters(FILTERS[0])).encoded,
            Subscription("n/%", None, shared=True).encoded,
        ),
        length_max=300,
        steps_per_byte=400,
    ),
    Target(
        "qpid_address",
        qpid_address,
        ("compat.qpid.messaging.address", "compat.qpid.resolving"),
        (),
        (
            b"my-queue; {create: always, delete: receiver, node: {type: queue, durable: True}}",
            b"news/sport.#; {node: {type: topic}, link: {name: 'a', durable: True, reliability: at-least-once}}",
            (
                b"q; {mode: browse, link: {selector: \"a = 'b'\", "
                b"filter: [{name: f, descriptor: 'x:y', value: [1, {a: 2.5}]}]}}"
            ),
            b"a\\/b\\x41\\u0042/'s;t'; {create: sender, node: {x-declare: {auto-delete: True, arguments: {'a.b': 1}}}}",
            b"#; {create: always, node: {durable: True}}",
        ),
        words=QPID_WORDS,
        long=(
            *repeated(QPID_WORDS, 600),
            *(b"q; " + many for many in repeated((b"{a: ", b"[", b"{", b"x"), 1_000)),
            *(b"q; {a: " + many for many in repeated((b"[", b"{a: ", b"'", b"1", b"a, b: "))),
            *(b"'" + many for many in repeated((b"\\", b"\\x41", b"x"))),
        ),
    ),
    Target(
        "url",
        url,
        ("client.url",),
        (ConfigurationError,),
        (
            b"amqps://user:p%40ss@[::1]:5671",
            b"failover:(amqp://one:5672,amqp://two)?failover.maxReconnectAttempts=3&failover.reconnectDelay=10",
        ),
        words=(b"failover:(", b"failover.reconnectBackOffMultiplier=nan", b"amqp://", b"%00", b"[::", b"@", b"?"),
        length_max=300,
    ),
    Target("qpid_url", qpid_url, ("compat.qpid.util",), (ValueError,), (b"amqp://a:b@h:5672", b"u/p@[::1]:1", b"h")),
    Target(
        "configuration",
        configuration,
        ("broker.configuration", "broker.options.address", "broker.options.security"),
        (ConfigurationError,),
        (
            (
                b'[limits]\nmemory_bytes_max = 1_000_000_000\n[users.ada]\npassword = ""\nroles = ["r"]\n[roles.r]\n'
                b'send = ["a.#"]\n[[address]]\nmatch = "orders.#"\nmax_delivery_attempts = 3\n'
            ),
            b'[[listen]]\nhost = "127.0.0.1"\nport = 5672\n[journal]\nsegment_bytes = 65536\n',
        ),
        words=(b"[[address]]\n", b'match = "#"\n', b"[security]\n", b"[tls]\n", b"= 1e400\n", b"= inf\n", b'"\\u0000"'),
        long=(*DEEP, b"a = " + b"1" * 20_000, b"a = 0x" + b"1" * 20_000, b"a = 1e" + b"1" * 20_000),
        steps=40_000,
        steps_per_byte=400,
        warms=True,
    ),
    Target(
        "users",
        users,
        ("broker.access.users_file",),
        (ConfigurationError,),
        (
            f'decoy_key = "QUFB"\n[users."a b"]\npassword = "{VERIFIER}"\nroles = ["x"]\n'.encode(),
            b"[users.x]\nany_user_id = true\n",
        ),
        words=(VERIFIER.encode(), b'"\\u007f"', b"[users.", b'decoy_key = "'),
        long=DEEP,
        steps=10_000,
        steps_per_byte=400,
        warms=True,
    ),
    Target("verifier", verifier, ("broker.access.users",), (ConfigurationError,), (VERIFIER.encode(),)),
    Target(
        "json_message",
        json_message,
        ("cli.messages", "protocol.jsonform"),
        (ConfigurationError, EncodeError),
        (
            b'{"body": "one", "body_type": "value", "message_id": {"uuid": "' + str(UUID(int=7)).encode() + b'"}}',
            b'{"body": {"base64": "AAEC"}, "priority": 3, "properties": {"a": {"double": "NaN"}}, "ttl_ms": 5}',
            b'{"body": [[1, {"map": [[1, {"described": ["d", {"decimal": "22380000"}]}]]}]], "body_type": "sequence"}',
        ),
        words=(b'{"timestamp_ms": ', b'{"map": [[', b'{"described": [', b"1e999", b'"body_type": "data"', b'"\\ud800"'),
        long=tuple(b'{"body": ' + one + b"}" for one in deep_json()),
        steps_per_byte=200,
    ),
    Target(
        "journal_head",
        journal_head,
        ("ledger.verify",),
        (ConfigurationError,),
        (f"{UUID(int=5)}:7:4096:{'ab' * 32}".encode(),),
    ),
)
