"""The generated definitions: that they are what the XML gives, and say what the specification says."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from enum import IntEnum
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from acquit import errors
from acquit.protocol import definitions
from acquit.protocol.definitions import (
    COMPOSITES,
    AmqpCondition,
    ConnectionCondition,
    LinkCondition,
    RcvSettleMode,
    Role,
    SectionCode,
    SndSettleMode,
    TerminusDurability,
    TerminusExpiryPolicy,
)

ROOT = Path(__file__).resolve().parents[3]
NAMESPACE = {"a": "http://www.amqp.org/schema/amqp.xsd"}

# Transcribed from the specification's sections by hand, to hold against what was generated.
DESCRIPTORS = {
    "Open": (0x10, 10, "2.7.1"),
    "Begin": (0x11, 8, "2.7.2"),
    "Attach": (0x12, 14, "2.7.3"),
    "Flow": (0x13, 11, "2.7.4"),
    "Transfer": (0x14, 11, "2.7.5"),
    "Disposition": (0x15, 6, "2.7.6"),
    "Detach": (0x16, 3, "2.7.7"),
    "End": (0x17, 1, "2.7.8"),
    "Close": (0x18, 1, "2.7.9"),
    "Error": (0x1D, 3, "2.8.14"),
    "Header": (0x70, 5, "3.2.1"),
    "Properties": (0x73, 13, "3.2.4"),
    "Received": (0x23, 2, "3.4.1"),
    "Accepted": (0x24, 0, "3.4.2"),
    "Rejected": (0x25, 1, "3.4.3"),
    "Released": (0x26, 0, "3.4.4"),
    "Modified": (0x27, 3, "3.4.5"),
    "Source": (0x28, 11, "3.5.3"),
    "Target": (0x29, 7, "3.5.4"),
    "DeleteOnClose": (0x2B, 0, "3.5.10"),
    "DeleteOnNoLinks": (0x2C, 0, "3.5.11"),
    "DeleteOnNoMessages": (0x2D, 0, "3.5.12"),
    "DeleteOnNoLinksOrMessages": (0x2E, 0, "3.5.13"),
    "Coordinator": (0x30, 1, "4.5.1"),
    "Declare": (0x31, 1, "4.5.2"),
    "Discharge": (0x32, 2, "4.5.3"),
    "Declared": (0x33, 1, "4.5.5"),
    "TransactionalState": (0x34, 2, "4.5.6"),
    "SaslMechanisms": (0x40, 1, "5.3.3.1"),
    "SaslInit": (0x41, 3, "5.3.3.2"),
    "SaslChallenge": (0x42, 1, "5.3.3.3"),
    "SaslResponse": (0x43, 1, "5.3.3.4"),
    "SaslOutcome": (0x44, 2, "5.3.3.5"),
}


def test_the_committed_module_is_what_the_xml_gives() -> None:
    command = [sys.executable, str(ROOT / "tools" / "generate_definitions.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_check_tells_a_difference(tmp_path: Path) -> None:
    """The generator, copied to a tree whose generated module is another, exits with 1 and writes nothing."""
    (tmp_path / "tools").mkdir()
    module = tmp_path / "src" / "acquit" / "protocol" / "definitions.py"
    module.parent.mkdir(parents=True)
    module.write_text("# other\n")
    (tmp_path / "spec").symlink_to(ROOT / "spec")
    script = tmp_path / "tools" / "generate_definitions.py"
    script.write_text((ROOT / "tools" / "generate_definitions.py").read_text())
    done = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "definitions.py" in done.stderr
    assert module.read_text() == "# other\n"
    subprocess.run([sys.executable, str(script)], check=True)
    assert module.read_text() == Path(definitions.__file__).read_text()


def test_every_composite_of_the_xml_has_a_class() -> None:
    in_xml = [
        element.attrib["name"]
        for part in ("transport", "messaging", "transactions", "security")
        for element in ET.parse(ROOT / "spec" / f"{part}.xml").iterfind(".//a:type[@class='composite']", NAMESPACE)
    ]
    assert [kind.SYMBOL for kind in COMPOSITES] == [f"amqp:{name}:list" for name in in_xml]
    assert len(COMPOSITES) == 33


@pytest.mark.parametrize("kind", COMPOSITES, ids=lambda kind: kind.__name__)
def test_descriptor_fields_and_section(kind: type) -> None:
    code, fields, section = DESCRIPTORS[kind.__name__]
    assert code == kind.DESCRIPTOR  # type: ignore[attr-defined]
    assert len(kind.FIELDS) == fields  # type: ignore[attr-defined]
    assert kind.__doc__ is not None
    assert f"({section})" in kind.__doc__
    assert not hasattr(kind, "__dict__") or "__slots__" in vars(kind)


@pytest.mark.parametrize("kind", COMPOSITES, ids=lambda kind: kind.__name__)
def test_the_table_and_the_attributes_agree(kind: type) -> None:
    attributes = {field.name: field for field in dataclasses.fields(kind)}
    assert list(attributes) == [field.name for field in kind.FIELDS]  # type: ignore[attr-defined]
    for field in kind.FIELDS:  # type: ignore[attr-defined]
        default = attributes[field.name].default
        if default is not dataclasses.MISSING:
            assert not field.mandatory
            assert default == (() if field.multiple else field.default)


def test_only_fields_before_a_mandatory_one_lack_a_default() -> None:
    lacking = [
        f"{kind.__name__}.{attribute.name}"
        for kind in COMPOSITES
        for attribute, field in zip(dataclasses.fields(kind), kind.FIELDS, strict=True)
        if attribute.default is dataclasses.MISSING and not field.mandatory
    ]
    assert lacking == ["Begin.remote_channel", "Flow.next_incoming_id"]


def test_what_is_shared_is_frozen() -> None:
    frozen = {kind.__name__ for kind in COMPOSITES if kind.__dataclass_params__.frozen}
    assert frozen == {
        "Error",
        *("Received", "Accepted", "Rejected", "Released", "Modified", "Declared", "TransactionalState"),
        *("DeleteOnClose", "DeleteOnNoLinks", "DeleteOnNoMessages", "DeleteOnNoLinksOrMessages"),
    }


def made_by_dataclass(kind: type[Any]) -> type[Any]:
    """A class with the same fields, whose methods `dataclass` has made."""
    fields = [
        (each.name, each.type, dataclasses.field(default=each.default, repr=not row.secret))
        for each, row in zip(dataclasses.fields(kind), kind.FIELDS, strict=True)
    ]
    frozen = kind.__dataclass_params__.frozen
    twin = dataclasses.make_dataclass(kind.__name__, fields, frozen=frozen, slots=True)
    twin.__qualname__ = kind.__qualname__
    return twin


@pytest.mark.parametrize("kind", COMPOSITES, ids=lambda kind: kind.__name__)
def test_the_methods_are_those_that_dataclass_makes(kind: type[Any]) -> None:
    twin = made_by_dataclass(kind)
    assert list(inspect.signature(kind).parameters) == list(inspect.signature(twin).parameters)
    for ours, its in zip(*(inspect.signature(one).parameters.values() for one in (kind, twin)), strict=True):
        assert (ours.kind, ours.default, ours.annotation) == (its.kind, its.default, its.annotation)
    assert kind.__match_args__ == twin.__match_args__
    names = [each.name for each in dataclasses.fields(kind)]
    values = [f"{name} {number}" for number, name in enumerate(names)]  # what is put where is to be seen
    one, same = kind(*values), kind(**dict(zip(names, values, strict=True)))
    assert repr(one) == repr(twin(*values))
    assert {name: getattr(one, name) for name in names} == dict(zip(names, values, strict=True))
    assert (one == same, one != same) == (True, False)
    assert one != twin(*values)
    assert one.__eq__(twin(*values)) is NotImplemented
    for name in names:
        other = dataclasses.replace(one, **{name: "other"})
        assert (one == other, one != other) == (False, True), name
        if twin.__hash__ is not None:
            assert hash(one) != hash(other), name
    for again in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert again == one


@pytest.mark.parametrize("kind", COMPOSITES, ids=lambda kind: kind.__name__)
def test_what_is_frozen_has_a_hash_and_cannot_be_changed(kind: type[Any]) -> None:
    names = [each.name for each in dataclasses.fields(kind)]
    one, same = kind(*names), kind(*names)
    if kind.__dataclass_params__.frozen:
        assert hash(one) == hash(same)
        for name in names:
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(one, name, "other")
            with pytest.raises(dataclasses.FrozenInstanceError):
                delattr(one, name)
        assert one == same
    else:
        with pytest.raises(TypeError, match="unhashable"):
            hash(one)
        for name in names:
            setattr(one, name, "other")
            assert getattr(one, name) == "other"


def test_nothing_that_may_be_a_password_is_shown() -> None:
    assert repr(definitions.SaslInit("PLAIN", b"hush", "here")) == "SaslInit(mechanism='PLAIN', hostname='here')"
    assert repr(definitions.SaslResponse(b"hush")) == "SaslResponse()"


def test_importing_the_definitions_compiles_only_what_freezes() -> None:
    """`dataclass` makes each method from a text: those that are made so are two for each frozen class. A text holds one
    method, and since Python 3.13 all those of a class."""
    program = (
        "import sys, acquit.protocol.types, acquit.protocol._schema\n"
        "texts = []\n"
        "sys.addaudithook(lambda event, told: texts.append(told) if event == 'exec' else None)\n"
        "import acquit.protocol.definitions as made\n"
        "def inside(code): return [one for one in code.co_consts if hasattr(one, 'co_consts')]\n"
        "makers = [one for code, in texts if code.co_filename == '<string>' for one in inside(code)]\n"
        "print(sum(len(inside(maker)) for maker in makers))\n"
        "print(sum(kind.__dataclass_params__.frozen for kind in made.COMPOSITES))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    methods, frozen = map(int, told.split())
    assert 0 < methods <= 2 * frozen


def test_choices_have_their_wire_values() -> None:
    assert not Role.SENDER
    assert Role.RECEIVER == True  # noqa: E712 - it is a boolean on the wire
    assert [mode.value for mode in SndSettleMode] == [0, 1, 2]
    assert [mode.value for mode in RcvSettleMode] == [0, 1]
    assert TerminusDurability.UNSETTLED_STATE == 2
    assert TerminusExpiryPolicy.NEVER == "never"
    assert AmqpCondition.NOT_FOUND == "amqp:not-found"
    assert ConnectionCondition.CONNECTION_FORCED == "amqp:connection:forced"
    assert LinkCondition.STOLEN == "amqp:link:stolen"
    assert issubclass(Role, IntEnum)


def test_section_codes_are_consecutive() -> None:
    codes = [value for name, value in vars(SectionCode).items() if name.isupper()]
    assert codes == list(range(0x70, 0x79))


def test_constants() -> None:
    assert definitions.PORT == 5672
    assert definitions.SECURE_PORT == 5671
    assert definitions.MIN_MAX_FRAME_SIZE == 512
    assert definitions.MESSAGE_FORMAT == 0


def test_the_conditions_that_exceptions_carry_exist() -> None:
    known = {
        value
        for scope in (
            definitions.AmqpCondition,
            definitions.ConnectionCondition,
            definitions.SessionCondition,
            definitions.LinkCondition,
        )
        for name, value in vars(scope).items()
        if name.isupper()
    }
    for kind in (errors.DecodeError, errors.FramingError, errors.ResourceLimitExceeded, errors.RemoteProtocolError):
        assert kind.default_condition in known
