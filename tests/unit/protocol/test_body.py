from __future__ import annotations

import io
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from acquit.errors import BodyError, DecodeError, EncodeError
from acquit.protocol import body as bodies
from acquit.protocol.body import FileBody
from acquit.protocol.message import LARGE_BYTES, AmqpSequence, AmqpValue, Body, Data, Message

MIB = 1024 * 1024


def sent(message: Message) -> Message:
    """As its reader sees it."""
    return Message.decode(message.encode())


# -- text --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ("naïve", None),
        (AmqpValue("naïve"), None),
        ("naïve".encode(), None),
        ("naïve".encode(), "application/octet-stream"),
        ("naïve".encode("latin-1"), "text/plain; charset=iso-8859-1"),
        ("naïve".encode("utf-16"), 'text/plain;charset="UTF-16"'),
        (Data(("na\N{LATIN SMALL LETTER I WITH DIAERESIS}".encode()[:3], "ï".encode()[1:], b"ve")), None),
    ],
)
def test_text_is_a_string_or_data_in_its_charset(body: Body, content_type: str | None) -> None:
    assert sent(Message(body, content_type=content_type)).text == "naïve"


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (Message(b"\xff\xfe", content_type="text/plain; charset=utf-8"), "no utf-8 text: byte 0 of 2"),
        (Message(b"x", content_type="text/plain; charset=klingon"), "charset 'klingon', which is not known"),
        (Message(b"x", content_type="text/plain; charset=a\0b"), "which is not known"),
        (Message(b"x", content_type="text/plain; charset=punycode"), "charset 'punycode', which is not known"),
        (Message(b"x", content_type="text/plain; charset=IDNA"), "charset 'IDNA', which is not known"),
        (Message(b"+x\xff", content_type="text/plain; charset=utf-7"), "no utf-7 text"),
        (Message(b"x", content_encoding="gzip"), "compressed .content-encoding gzip.: decompress"),
        (Message([1]), "the body is a list .amqp-value., and not text"),
        (Message(AmqpValue(b"x")), "the body is a bytes .amqp-value., and not text"),
        (Message(AmqpSequence(([1],))), "amqp-sequence"),
        (Message(None), "no body, or null"),
    ],
)
def test_what_is_no_text_is_said(message: Message, complaint: str) -> None:
    with pytest.raises(BodyError, match=complaint):
        _ = sent(message).text


# -- json --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, True, 17, 1.5, "naïve", [1, [2]], {"a": {"b": None}}, {}])
def test_json_comes_back(value: object) -> None:
    message = sent(Message.from_json(value, subject="s"))
    assert message.json() == value
    assert (message.content_type, message.subject) == ("application/json", "s")
    assert type(message.body) is bytes
    assert "\\u" not in message.text


def test_json_of_others_may_be_a_string_and_of_any_content_type() -> None:
    assert sent(Message('{"a": 1}', content_type="text/plain")).json() == {"a": 1}
    assert sent(Message(b"\r\n[1]\n")).json() == [1]
    message = Message.from_json({"at": Path("x")}, default=str, content_type="application/problem+json")
    assert (message.json(), message.content_type) == ({"at": "x"}, "application/problem+json")


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        (b'{"a": }', r"not JSON: Expecting value: line 1 column 7 \(char 6\), at '}'"),
        (b"", "not JSON: Expecting value: line 1 column 1"),
        (b'{"a": NaN}', "not JSON: JSON has no NaN$"),
        (b"[-Infinity]", "not JSON: JSON has no -Infinity$"),
        (b"9" * 5_000, "not JSON: "),
        (b"\x80", "no utf-8 text"),
        (b"[" * 100_000, "nested too deeply"),
        ({"a": 1}, "the body is a dict .amqp-value., and not text"),
    ],
)
def test_what_is_no_json_is_said(body: Body, complaint: str) -> None:
    with pytest.raises(BodyError, match=complaint) as raised:
        sent(Message(body)).json()
    assert isinstance(raised.value, ValueError)


def circle() -> object:
    value: list[object] = []
    value.append(value)
    return value


@pytest.mark.parametrize("value", [object(), float("nan"), {1, 2}, b"x", circle()])
def test_what_has_no_json_form_is_refused(value: object) -> None:
    with pytest.raises(EncodeError, match="no JSON form"):
        Message.from_json(value)


# -- files -------------------------------------------------------------------------------------------------------------


class Unseekable:
    """As a pipe or a socket is."""

    def __init__(self, data: bytes, step: int) -> None:
        self._in = io.BytesIO(data)
        self._step = step

    def read(self, size: int) -> bytes:
        return self._in.read(min(size, self._step))


class NotReady:
    """A file that does not wait."""

    def read(self, size: int) -> None:
        return None


@pytest.mark.parametrize("size", [0, 1, 255, 256, bodies.CHUNK_BYTES, 2 * bodies.CHUNK_BYTES + 7])
def test_a_file_is_the_body(tmp_path: Path, size: int) -> None:
    content = os.urandom(size)
    path = tmp_path / "in"
    path.write_bytes(content)
    for file in (path, str(path), io.BytesIO(content), Unseekable(content, 1_000)):
        message = Message.from_file(file, subject="s", footer={"x-opt-f": 1})
        read = sent(message)
        assert (read.body, read.subject, read.footer) == (content, "s", {"x-opt-f": 1})


def test_an_open_file_is_read_from_where_it_stands_and_again() -> None:
    file = io.BytesIO(b"head body")
    file.seek(5)
    message = Message.from_file(file)
    assert [sent(message).body, sent(message).body] == [b"body", b"body"]
    drained = Message.from_file(Unseekable(b"body", 10))
    assert [sent(drained).body, sent(drained).body] == [b"body", b""]


def test_a_file_is_read_when_it_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "in"
    message = Message.from_file(path)
    with pytest.raises(FileNotFoundError):
        message.encode()
    path.write_bytes(b"now")
    assert sent(message).body == b"now"
    assert repr(message).startswith("Message(FileBody(file=")


def test_a_file_that_shrinks_under_us_is_sent_as_it_is() -> None:
    class Shrinking(io.BytesIO):
        def seek(self, offset: int, whence: int = 0) -> int:
            return 100 if whence == io.SEEK_END else super().seek(offset, whence)

    assert sent(Message.from_file(Shrinking(b"short"), footer={"x-opt-f": 1})).body == b"short"


@pytest.mark.parametrize("file", [io.StringIO("text"), NotReady()], ids=["text", "not ready"])
def test_a_file_that_gives_no_bytes_is_refused(file: Any) -> None:
    with pytest.raises(EncodeError, match="open for reading bytes, and wait for them; read gave"):
        Message.from_file(file).encode()


def test_other_buffers_are_data_as_well() -> None:
    for body in (bytearray(b"abc"), memoryview(b"abc"), memoryview(b"aXbXcX")[::2]):
        assert sent(Message(body)).body == b"abc"  # type: ignore[arg-type]
    assert sent(Message(memoryview(bytes(LARGE_BYTES)).cast("I"))).body == bytes(LARGE_BYTES)  # type: ignore[arg-type]


def test_more_than_a_section_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "SECTION_BYTES_MAX", 100_000)
    for body in (FileBody(io.BytesIO(bytes(100_001))), FileBody(Unseekable(bytes(100_001), 1 << 20)), bytes(100_001)):
        with pytest.raises(EncodeError, match="100001 bytes; a data section holds 100000 at most"):
            Message(body).encode()
    assert sent(Message(FileBody(io.BytesIO(bytes(100_000))))).body == bytes(100_000)


@pytest.mark.parametrize(
    ("body", "content"),
    [
        (b"", b""),
        (b"abc", b"abc"),
        (bytes(LARGE_BYTES), bytes(LARGE_BYTES)),
        (Data((b"ab", b"", bytes(300))), b"ab" + bytes(300)),
        ("naïve", "naïve".encode()),
        (AmqpValue("naïve"), "naïve".encode()),
    ],
)
def test_a_body_is_saved(tmp_path: Path, body: Body, content: bytes) -> None:
    for message in (Message(body), sent(Message(body)), decoded(sent(Message(body)))):
        file = io.BytesIO()
        file.write(b"head ")
        assert message.save_body(file) == len(content)
        assert file.getvalue() == b"head " + content
        (tmp_path / "out").write_bytes(b"longer than before" * 10)
        assert message.save_body(tmp_path / "out") == len(content)
        assert (tmp_path / "out").read_bytes() == content


def decoded(message: Message) -> Message:
    _ = message.body
    return message


def test_a_file_that_takes_little_at_a_time_gets_all() -> None:
    taken = bytearray()

    class Slow:
        def write(self, data: memoryview) -> int:
            taken.extend(data[:7])
            return len(data[:7])

    content = os.urandom(1_000)
    assert sent(Message(content)).save_body(Slow()) == 1_000
    assert taken == content


@pytest.mark.parametrize("body", [None, [1], AmqpSequence(([1],)), AmqpValue(b"x"), FileBody("nowhere")])
def test_bodies_that_are_no_data_are_not_saved(tmp_path: Path, body: Body) -> None:
    message = Message(body) if isinstance(body, FileBody) else sent(Message(body))
    for ask in (message.body_views, lambda: message.save_body(tmp_path / "out")):
        with pytest.raises(BodyError):
            ask()
    assert not (tmp_path / "out").exists()


def test_views_are_of_the_message_itself() -> None:
    message = sent(Message(Data((b"ab", b"cd"))))
    views = message.body_views()
    assert [bytes(view) for view in views] == [b"ab", b"cd"]
    assert {id(view.obj) for view in views} == {id(message._sections.payload)}
    assert "body" not in message.__dict__


def test_malformed_data_is_said() -> None:
    message = Message.decode(b"\x00\x53\x75\xa0\x02ab")
    message._sections.bounds[6] -= 1
    with pytest.raises(DecodeError):
        message.body_views()


# -- memory ------------------------------------------------------------------------------------------------------------


def peak_of(action: Callable[[], object]) -> float:
    """What it takes beyond what is there before, in MiB."""
    tracemalloc.start()
    try:
        kept = action()
        peak = tracemalloc.get_traced_memory()[1]
        del kept
    finally:
        tracemalloc.stop()
    return peak / MIB


def test_a_file_is_held_once_as_it_is_sent(tmp_path: Path) -> None:
    path = tmp_path / "in"
    with path.open("wb") as file:
        file.truncate(32 * MIB)
    assert peak_of(Message.from_file(path).encode) < 32 * 1.1
    assert peak_of(Message.from_file(Unseekable(bytes(32 * MIB), MIB)).encode) < 32 * 1.3


def test_a_large_body_is_copied_once_as_it_is_sent() -> None:
    body = bytes(32 * MIB)
    assert peak_of(Message(body).encode) < 32 * 1.1
    assert peak_of(Message(Data((body, body))).encode) < 64 * 1.1


def test_a_message_that_is_passed_on_is_copied_once() -> None:
    payload = Message(bytes(32 * MIB), subject="s").encode()
    assert peak_of(Message.decode(payload).encode) < 32 * 1.1


def test_a_body_is_saved_without_a_second_one(tmp_path: Path) -> None:
    payload = Message(bytes(32 * MIB)).encode()
    assert peak_of(lambda: Message.decode(payload).save_body(tmp_path / "out")) < 1
    assert (tmp_path / "out").stat().st_size == 32 * MIB
