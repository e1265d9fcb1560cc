"""Values that cannot work are refused by name; delays that grow stop growing."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from dataclasses import fields
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_origin, get_type_hints

import pytest

from acquit.broker.configuration import parse_options
from acquit.broker.options import (
    AddressPolicy,
    AddressRule,
    BrokerLimits,
    BrokerOptions,
    ConnectionLimits,
    Http,
    Listen,
    Role,
    Security,
    Tls,
    TransactionLimits,
    User,
)
from acquit.errors import ConfigurationError
from acquit.store.options import JournalOptions

OPTIONS = (AddressPolicy, BrokerLimits, ConnectionLimits, Http, JournalOptions, Listen, Role, Security, Tls, User)


def test_a_number_out_of_range_is_named() -> None:
    with pytest.raises(ConfigurationError, match="idle_timeout_ms: expected a number from 0 to 4294967295, found -1"):
        ConnectionLimits(idle_timeout_ms=-1)
    with pytest.raises(ConfigurationError, match="connections_max"):
        BrokerLimits(connections_max=0)
    with pytest.raises(ConfigurationError, match="anonymous: expected one of"):
        Security(anonymous="sometimes")  # type: ignore[arg-type]


def test_a_rule_knows_its_settings() -> None:
    with pytest.raises(ConfigurationError, match="bogus: no such setting"):
        AddressRule("a", {"bogus": 1})
    with pytest.raises(
        ConfigurationError, match=r"mesages_max: no such setting of an address; did you mean messages_max\?$"
    ):
        AddressRule("a", {"mesages_max": 1})
    with pytest.raises(ConfigurationError, match="max_delivery_attempts"):
        AddressRule("a", {"max_delivery_attempts": -1})


WRONG = {
    int: (2.5, 2.0, True, "2", None),
    float: ("2", True, None),
    str: (5, True, None, b"a", "half a pair \ud800"),
    bool: ("no", 0, 1, None),
    tuple[str, ...]: ("name", (5,), None),
}


@pytest.mark.parametrize(
    "kind",
    [AddressPolicy, BrokerLimits, BrokerOptions, ConnectionLimits, Http, Listen, Security, Tls, TransactionLimits],
)
def test_no_field_takes_a_value_of_another_type(kind: type) -> None:
    """A program and an operator's request come here past the types of TOML."""
    checked = 0
    for name, hint in get_type_hints(kind).items():
        wrong = ("sideways", 1, None) if get_origin(hint) is Literal else WRONG.get(hint, ())
        for value in wrong:
            checked += 1
            with pytest.raises(ConfigurationError, match=f"^{name}: expected "):
                kind(**{name: value})
    assert checked


def test_a_path_is_taken_for_its_text() -> None:
    given: dict[str, Any] = {"certificate_file": Path("/a"), "key_file": Path("/b")}
    found = Tls(**given)
    assert (found.certificate_file, found.key_file) == ("/a", "/b")
    users: dict[str, Any] = {"users_file": Path("/c")}
    assert Security(**users).users_file == "/c"


def test_two_rules_for_one_pattern_are_one_too_many() -> None:
    with pytest.raises(ConfigurationError, match="expected one rule for each pattern"):
        BrokerOptions(address=(AddressRule("a"), AddressRule("a")))


def test_redelivery_delays() -> None:
    assert AddressPolicy().redelivery_delay(5) == 0
    fixed = AddressPolicy(redelivery_delay_ms=100)
    assert [fixed.redelivery_delay(attempt) for attempt in (1, 2, 60_000)] == [100, 100, 100]
    growing = AddressPolicy(redelivery_delay_ms=100, redelivery_multiplier=3.0)
    assert [growing.redelivery_delay(attempt) for attempt in (1, 2, 3, 4, 60_000)] == [100, 300, 900, 1_000, 1_000]
    longest = AddressPolicy(redelivery_delay_ms=100, redelivery_multiplier=1000.0, redelivery_delay_ms_max=5_000)
    assert longest.redelivery_delay(60_000) == 5_000


def field_docs(kind: type) -> dict[str, str]:
    """The docstrings under the fields of a dataclass."""
    tree = ast.parse(inspect.getsource(sys.modules[kind.__module__]))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind.__name__)
    return {
        field.target.id: " ".join(str(doc.value.value).split())
        for field, doc in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(doc, ast.Expr)
        and isinstance(doc.value, ast.Constant)
    }


def in_toml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case ():
            return "[]"
        case str():
            return f'"{value}"'
        case int() if value >= 10_000:
            return f"{value:_}"
        case _:
            return str(value)


@pytest.mark.parametrize(
    "kind",
    OPTIONS,
    ids=lambda kind: kind.__name__,
)
def test_the_page_lists_every_key_with_its_default_and_meaning(kind: type) -> None:
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text()
    docs = field_docs(kind)
    for field in fields(kind):
        if field.name in ("users", "roles"):
            continue
        doc = docs[field.name].replace("``", "`").replace("|", "/")
        assert f"| `{field.name}` | `{in_toml(field.default)}` | {doc} |" in page


SECTIONS: dict[str, tuple[type, ...]] = {
    "[[address]]": (AddressPolicy,),
    "[users.NAME]": (User, Role, Security),
    "[tls]": (Tls, Listen),
    "[http]": (Http,),
    "[connection]": (ConnectionLimits,),
    "[limits]": (BrokerLimits,),
    "[transactions]": (TransactionLimits,),
    "[journal]": (JournalOptions,),
}


def test_the_page_lists_every_key_in_the_section_of_its_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text()
    found = {}
    for section in page.split("\n## `")[1:]:
        found[section.partition("`")[0]] = sorted(re.findall(r"^\| `(\w+)` \| `", section, re.MULTILINE))
    assert found == {
        table: sorted({spec.name for kind in kinds for spec in fields(kind)} - {"users"})
        for table, kinds in SECTIONS.items()
    }


@pytest.mark.parametrize("kind", [*OPTIONS, TransactionLimits], ids=lambda kind: kind.__name__)
def test_every_number_has_a_range_and_every_word_its_choices(kind: type) -> None:
    for name, hint in get_type_hints(kind).items():
        if hint in (int, float) or get_origin(hint) is Literal:
            with pytest.raises(ConfigurationError, match=name):
                kind(**{name: "such" if get_origin(hint) is Literal else -1})


def test_the_examples_of_the_page_are_valid() -> None:
    page = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text()
    for example in page.split("```toml\n")[1:]:
        parse_options(example.partition("```")[0])


def test_the_jitter_of_a_delay_stays_within_its_part_and_below_the_longest() -> None:
    policy = AddressPolicy(redelivery_delay_ms=1_000, redelivery_multiplier=2.0, redelivery_jitter=0.25)
    assert [policy.redelivery_delay(1, chance) for chance in (0.0, 0.5, 1.0)] == [750, 1_000, 1_250]
    assert [policy.redelivery_delay(9, chance) for chance in (0.0, 1.0)] == [7_500, 10_000]
    assert AddressPolicy(redelivery_delay_ms=1, redelivery_jitter=1.0).redelivery_delay(1, 0.0) == 1, "never at once"
    assert AddressPolicy(redelivery_jitter=1.0).redelivery_delay(3, 1.0) == 0


def test_returns_are_free_at_first_and_then_paced() -> None:
    policy = AddressPolicy()
    assert [policy.release_delay(returns) for returns in (1, 10, 11, 12, 18, 19, 65_535)] == [0, 0, 1, 2, 128, 200, 200]
    assert AddressPolicy(release_delay_ms_max=0).release_delay(50) == 0


@pytest.mark.parametrize(
    "setting",
    [{"redelivery_jitter": 1.1}, {"redelivery_blocks": "all"}, {"max_releases": -1}, {"lock_duration_ms": -1}],
    ids=repr,
)
def test_what_cannot_be_waited_for_is_refused(setting: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(setting))):
        AddressPolicy(**setting)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ('[http]\nhost = "0.0.0.0"', "http: host = '0.0.0.0' needs tls.certificate_file"),
        ('[http]\nhost = "::"', "http: host = '::' needs tls.certificate_file"),
        ('[http]\nhost = "a.name"', "http: host = 'a.name' needs tls.certificate_file"),
        (
            '[http]\nhost = "0.0.0.0"\ntls = false\n[tls]\ncertificate_file = "c"\nkey_file = "k"',
            "http: host = '0.0.0.0' needs tls = true",
        ),
        ("[http]\nport = 65_536", "expected a number from 0 to 65535"),
    ],
)
def test_the_http_interface_is_reached_from_elsewhere_with_tls_alone(config: str, fault: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(fault)):
        parse_options(config)


def test_a_table_even_an_empty_one_turns_the_http_interface_on() -> None:
    assert parse_options("").http is None
    assert parse_options("[http]").http == Http()
    assert parse_options('[http]\nhost = "0.0.0.0"\n[security]\nplain = "always"').http == Http(host="0.0.0.0")
    for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost"):
        assert parse_options(f'[http]\nhost = "{host}"').http == Http(host=host)
