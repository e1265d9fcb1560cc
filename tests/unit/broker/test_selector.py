"""Selectors by the sentences of JMS 2.0, 3.8.1: what is taken, what it means, and how the rest is refused."""

from __future__ import annotations

import pytest

from acquit.broker.selector import Fields, compile_selector
from acquit.broker.selector.lexer import TEXT_MAX
from acquit.broker.selector.like import PATTERN_MAX
from acquit.broker.selector.parser import DEPTH_MAX, TERMS_MAX
from acquit.errors import SelectorError

FIELDS = Fields(
    {
        "one": 1,
        "two": 2,
        "half": 0.5,
        "least": -(2**63),
        "most": 2**63 - 1,
        "beyond": 2**64 - 1,
        "odd": 2**53 + 1,
        "text": "red",
        "empty": "",
        "quote": "it's",
        "path": "100%_\\x",
        "yes": True,
        "no": False,
        "opaque": object(),
        "a.b": 3,
        "$_x1": 4,
        "größe": 5,
        "with space": 6,
        'say "so"': 7,
        "m.x-opt-level": 8,
        "nan": float("nan"),
        "infinite": float("inf"),
    }
)
TRUTHS: dict[bool | None, str] = {True: "yes = TRUE", False: "yes = FALSE", None: "absent = TRUE"}


def truth(text: str) -> bool | None:
    """True, false or unknown: unknown is what neither the condition nor its negation is."""
    if compile_selector(text).matches(FIELDS):
        assert not compile_selector(f"NOT ({text})").matches(FIELDS)
        return True
    return False if compile_selector(f"NOT ({text})").matches(FIELDS) else None


def test_the_three_truths() -> None:
    assert {value: truth(text) for value, text in TRUTHS.items()} == {True: True, False: False, None: None}


@pytest.mark.parametrize("right", [True, False, None])
@pytest.mark.parametrize("left", [True, False, None])
def test_logic_of_three_values(left: bool | None, right: bool | None) -> None:
    operands = (left, right)
    conjunction = False if False in operands else None if None in operands else True
    disjunction = True if True in operands else None if None in operands else False
    assert truth(f"{TRUTHS[left]} AND {TRUTHS[right]}") is conjunction
    assert truth(f"{TRUTHS[left]} OR {TRUTHS[right]}") is disjunction


@pytest.mark.parametrize(("value", "negated"), [(True, False), (False, True), (None, None)])
def test_not(value: bool | None, negated: bool | None) -> None:
    assert truth(f"NOT {TRUTHS[value]}") is negated
    assert truth(f"NOT NOT {TRUTHS[value]}") is value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # precedence: NOT, AND, OR; comparison above them; * and / above + and -; signs above all
        ("no AND no OR yes", True),
        ("yes OR no AND no", True),
        ("(yes OR no) AND no", False),
        ("NOT no AND yes", True),
        ("NOT yes OR yes", True),
        ("NOT (yes OR yes)", False),
        ("NOT one = 2", True),
        ("1 + 2 * 3 = 7", True),
        ("(1 + 2) * 3 = 9", True),
        ("10 - 4 - 3 = 3", True),
        ("24 / 4 / 2 = 3", True),
        ("2 - -1 = 3", True),
        ("- two + 3 = 1", True),
        ("-(one + two) = -3", True),
        ("+ - + one = -1", True),
        ("7 - 2 < 2 * 3", True),
        ("one+two=3 and(yes)", True),
        # comparisons
        ("one = 1", True),
        ("one <> 1", False),
        ("one < two", True),
        ("two <= 2", True),
        ("one > two", False),
        ("1 >= one", True),
        ("2 > one", True),
        ("text = 'red'", True),
        ("'red' = text", True),
        ("text <> 'blue'", True),
        ("text = text", True),
        ("quote = 'it''s'", True),
        ("empty = ''", True),
        ("yes = TRUE", True),
        ("yes <> no", True),
        ("TRUE", True),
        ("false", False),
        ("yes", True),
        ("no", False),
        ("absent", None),
        ("(one = 1) = TRUE", True),
        ("(absent = 1) = TRUE", None),
        # with null: unknown
        ("absent = 1", None),
        ("absent <> 1", None),
        ("1 < absent", None),
        ("absent = absent", None),
        ("absent = 'x'", None),
        ("absent <> 'x'", None),
        ("absent + 1 = 2", None),
        ("1 + absent * 0 = 1", None),
        # of different types: false, whichever way it is asked
        ("text = 1", False),
        ("text <> 1", False),
        ("one = '1'", False),
        ("one <> '1'", False),
        ("one = TRUE", False),
        ("one <> TRUE", False),
        ("yes = 1", False),
        ("yes <> 1", False),
        ("yes > 0", False),
        ("text < 1", False),
        ("text > one", False),
        ("text < text", False),
        ("yes < no", False),
        ("'a' = 1", False),
        ("opaque = opaque", False),
        ("opaque <> 'x'", False),
        ("text", False),
        ("one AND yes", False),
        # numbers: exact with approximate, as in Java
        ("one = 1.0", True),
        ("half = .5", True),
        ("half * 2 = one", True),
        ("one / 2 = 0", True),
        ("one / 2. = .5", True),
        ("-7 / 2 = -3", True),
        ("7 / -2 = -3", True),
        ("-7 / -2 = 3", True),
        ("-7 % 3 = -1", True),
        ("7 % -3 = 1", True),
        ("7.5 % 2 = 1.5", True),
        ("one / 0 = 0", None),
        ("one % 0 = 0", None),
        ("half / 0 = 0", None),
        ("half % 0 = 0", None),
        ("half / 0 IS NULL", True),
        ("odd = 9007199254740993", True),
        ("odd = 9007199254740992", False),
        ("odd = 9007199254740992.0", True),
        ("9007199254740992.0 = odd", True),
        ("odd = odd * 1.0", True),
        ("most + 1 > 0", None),
        ("least - 1 < 0", None),
        ("- least > 0", None),
        ("least / -1 > 0", None),
        ("most * most > 0", None),
        ("least = -9223372036854775808", True),
        ("most = 9223372036854775807", True),
        ("beyond > most", True),
        ("beyond + 0 > 0", None),
        ("text + 1 = 1", None),
        ("yes * 1 = 1", None),
        ("-text = 1", None),
        ("nan = nan", False),
        ("nan <> 1", True),
        ("infinite > most", True),
        ("infinite % 2 = 0", None),
        # literals: Java's
        ("57L = 57", True),
        ("0x1F = 31 AND 0XffL = 255", True),
        ("017 = 15 AND 0 = 00", True),
        ("0b101 = 5", True),
        ("1_000 = 1000", True),
        ("7E3 = 7000 AND -57.9e+1 = -579 AND 5.e-1 = .5", True),
        ("1f = 1 AND 2.5D = 2.5", True),
        ("0x1.8p1 = 3", True),
        # identifiers
        ("a.b = 3 AND $_x1 = 4 AND größe = 5", True),
        ('"with space" = 6 AND "say ""so""" = 7 AND "one" = 1', True),
        ("m.x-opt-level = 8 AND m.x-opt-level - 1 = 7", True),
        ("one-two = -1", True),
        ("ONE = 1", None),
        ("Tr_ue IS NULL AND nullable IS NULL AND inn IS NULL", True),
        # reserved words in any case, blank space of any kind
        ("one\tbetween\r\n0\fand 2 Or faLse", True),
        # BETWEEN is two comparisons
        ("two BETWEEN 1 AND 3", True),
        ("two BETWEEN 2 AND 2", True),
        ("two BETWEEN 3 AND 1", False),
        ("two NOT BETWEEN 1 AND 3", False),
        ("two NOT BETWEEN 3 AND 4", True),
        ("one + one BETWEEN one AND 1 + one AND yes", True),
        ("absent BETWEEN 1 AND 3", None),
        ("absent NOT BETWEEN 1 AND 3", None),
        ("two BETWEEN 3 AND absent", False),
        ("two BETWEEN 1 AND absent", None),
        ("two NOT BETWEEN 3 AND absent", True),
        ("text BETWEEN 1 AND 3", False),
        ("text NOT BETWEEN 1 AND 3", False),
        # IN
        ("text IN ('red')", True),
        ("text IN ('green', 'red')", True),
        ("text NOT IN ('green', 'blue')", True),
        ("text NOT IN ('red', 'blue')", False),
        ("absent IN ('red')", None),
        ("absent NOT IN ('red')", None),
        ("one IN ('1')", False),
        ("one NOT IN ('1')", True),
        ("two IN (1, +2, -3)", True),
        ("two IN ('2', 2.0)", True),
        ("yes IN (1)", False),
        ("quote IN ('it''s')", True),
        # LIKE
        ("text LIKE 'red'", True),
        ("text LIKE 'r%'", True),
        ("text LIKE '%d'", True),
        ("text LIKE '%e%'", True),
        ("text LIKE '_e_'", True),
        ("text LIKE '__'", False),
        ("text LIKE '____'", False),
        ("text LIKE '%'", True),
        ("text LIKE ''", False),
        ("empty LIKE ''", True),
        ("empty LIKE '%'", True),
        ("empty LIKE '_'", False),
        ("text LIKE 'RED'", False),
        ("text NOT LIKE 'b%'", True),
        ("text NOT LIKE 'r%'", False),
        ("absent LIKE '%'", None),
        ("absent NOT LIKE '%'", None),
        ("one LIKE '1'", False),
        ("one NOT LIKE '1'", True),
        ("text LIKE '.e.'", False),
        ("path LIKE '100!%!_%' ESCAPE '!'", True),
        ("path LIKE '1__%%' ESCAPE '%'", False),
        ("path LIKE '%\\_\\\\x' ESCAPE '\\'", True),
        ("path LIKE '%\\x'", True),
        ("path LIKE '100%%__\\_' ESCAPE '%'", False),
        ("path LIKE '100%%%_\\_' ESCAPE '%'", True),
        ("quote LIKE 'it''_'", True),
        ("one = 1 AND text NOT LIKE '_' ESCAPE '!' AND yes", True),
        # IS NULL is never unknown
        ("absent IS NULL", True),
        ("absent IS NOT NULL", False),
        ("text IS NULL", False),
        ("text IS NOT NULL", True),
        ("empty IS NULL", False),
        ("opaque IS NULL", False),
        ("no IS NOT NULL", True),
        ("(absent = 1) IS NULL", True),
    ],
)
def test_meaning(text: str, expected: bool | None) -> None:
    assert truth(text) is expected


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", 0, "found the end, expected a name, a literal or ("),
        ("one =", 5, "found the end, expected a name, a literal or ("),
        ("one = = 1", 6, "found '=', expected a name"),
        ("one == 1", 5, "found '=', expected a name"),
        ("one != 1", 4, "found '!', expected a name, a literal or an operator"),
        ("one = 1 two", 8, "found 'two', expected an operator, AND, OR or the end"),
        ("one = 1 = yes", 8, "found '=', expected"),
        ("(one = 1", 8, "found the end, expected an operator, AND, OR or )"),
        ("one = 1)", 7, "found ')', expected"),
        ("one NOT 1", 8, "found '1', expected BETWEEN, IN or LIKE"),
        ("one IS 1", 7, "found '1', expected NULL or NOT NULL"),
        ("one IS NOT 1", 11, "found '1', expected NULL"),
        ("one = NULL", 6, "found 'NULL', expected a name or a literal (IS NULL tells"),
        ("one BETWEEN 1 OR 2", 14, "found 'OR', expected AND and the upper bound"),
        ("text IN 'red'", 8, "found 'red', expected ( and a list"),
        ("text IN ()", 9, "found ')', expected a string or a number"),
        ("text IN ('red' 'blue')", 15, "expected a comma or )"),
        ("text IN (-'red')", 10, "expected a number"),
        ("text IN (two)", 9, "found 'two', expected a string or a number"),
        ("text LIKE two", 10, "expected a pattern in single quotes"),
        ("text LIKE 'a' ESCAPE 'xy'", 21, "found 'xy', expected one character"),
        ("text LIKE 'a' ESCAPE ''", 21, "expected one character"),
        ("text LIKE 'a!b' ESCAPE '!'", 10, "found '!' before 'b', expected %, _ or ! behind"),
        ("text LIKE 'a!' ESCAPE '!'", 10, "found '!' at the end of the pattern"),
        ("text LIKE '%%%' ESCAPE '%'", 10, "found '%' at the end of the pattern"),
        ("text LIKE 'a' ESCAPE '\n\n'", 21, "found '\\n\\n', expected one character"),
        ("text = 'red", 7, "expected a closing ' for this one"),
        ('"one = 1', 0, 'expected a closing " for this one'),
        ('"" = 1', 0, "expected a name between the quotes"),
        ("1two = 1", 0, "found '1t', expected a number or a name"),
        ("1..5 = 1", 0, "found a number, expected a condition"),
        ("08 = 8", 0, "expected the digits 0 to 7"),
        ("9223372036854775808 = 1", 0, "expected an integer of at most 64 bits"),
        ("one IN (9223372036854775808)", 8, "expected an integer of at most 64 bits"),
        ("0xFFFFFFFFFFFFFFFF = 1", 0, "expected an integer of at most 64 bits"),
        ("one = 1e309", 6, "expected a number within the range of a double"),
        ("0x1p99999 = 1", 0, "expected a number within the range of a double"),
        ("one = #", 6, "found '#'"),
        ("one = \x00", 6, "found '\\x00'"),
        # of the wrong type whatever the message says
        ("1", 0, "found a number, expected a condition or a name"),
        ("one + 1", 0, "found a number, expected a condition"),
        ("'red'", 0, "found a string, expected a condition"),
        ("yes AND 1", 8, "found a number, expected a condition"),
        ("'a' OR yes", 0, "found a string, expected a condition"),
        ("NOT 1", 4, "found a number, expected a condition"),
        ("text < 'red'", 7, "found a string, expected a number or a name"),
        ("TRUE > no", 0, "found a condition, expected a number or a name"),
        ("(one = 1) + 1 = 2", 0, "found a condition, expected a number"),
        ("1 + 'a' = 2", 4, "found a string, expected a number"),
        ("-'a' = 1", 1, "found a string, expected a number"),
        ("'a' BETWEEN 1 AND 2", 0, "found a string, expected a number"),
        ("1 LIKE 'a'", 0, "found a number, expected a string or a name"),
        ("TRUE IN ('a')", 0, "found a condition, expected a string or a number"),
    ],
)
def test_refused_where_and_why(text: str, position: int, message: str) -> None:
    with pytest.raises(SelectorError) as refused:
        compile_selector(text)
    assert refused.value.position == position
    assert str(refused.value).startswith(f"selector, character {position + 1}: ")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 200
    assert refused.value.condition == "amqp:invalid-field"


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000 + "yes" + ")" * 10_000,
        "(" * 10_000,
        "NOT " * 10_000 + "yes",
        "-" * 10_000 + "one = 1",
        "- (" * 5_000 + "one" + ")" * 5_000 + " = 1",
        "x" * 1_000_000,
        "'" + "x" * 1_000_000,
        "9" * 60_000 + " = 1",
        "1" * 60_000 + ".0 = 1",
        " OR ".join(["one = 1"] * 5_000),
        "+".join(["1"] * 5_000) + " = 1",
        "text LIKE '" + "%_" * 5_000 + "'",
        "one = 1 OR " * 2 + "_" * TEXT_MAX,
    ],
)
def test_what_is_too_much_is_refused(text: str) -> None:
    with pytest.raises(SelectorError, match="at most|64 bits|within the range"):
        compile_selector(text)


def test_what_is_just_not_too_much() -> None:
    deep = "(" * DEPTH_MAX + "yes" + ")" * DEPTH_MAX
    assert compile_selector(deep).matches(FIELDS)
    assert compile_selector("NOT (" * (DEPTH_MAX // 2) + "yes" + ")" * (DEPTH_MAX // 2)).matches(FIELDS)
    mixed = "(no OR yes AND 0 + 1 * " * DEPTH_MAX + "one = 1"
    for _ in range(DEPTH_MAX):
        mixed += ")"
    with pytest.raises(SelectorError, match="found a condition"):
        compile_selector(mixed)
    levels = "no OR yes AND 0 + 1 * (" * 1 + "one" + ") = 1"
    for _ in range(DEPTH_MAX - 1):
        levels = f"no OR yes AND ({levels}) = TRUE"
    assert compile_selector(levels).matches(FIELDS)
    assert compile_selector(" AND ".join(["one = 1"] * (TERMS_MAX // 2))).matches(FIELDS)
    assert compile_selector("+".join(["1"] * (TERMS_MAX - 1)) + f" = {TERMS_MAX - 1}").matches(FIELDS)
    many = ", ".join(f"'{number}'" for number in range(5_000))
    assert compile_selector(f"text IN ({many}, 'red')").matches(FIELDS)
    assert compile_selector(f"text LIKE '{'%' * PATTERN_MAX}'").matches(FIELDS)


def test_names_that_a_selector_asks_for() -> None:
    selector = compile_selector(
        "a + -b > c AND d BETWEEN e AND f OR NOT (g IN ('x') OR h LIKE 'y' OR i IS NULL OR j = 'k') AND \"L m\""
    )
    assert selector.identifiers == frozenset("abcdefghij") | {"L m"}
    assert selector.needs_body
    assert not compile_selector("JMSPriority > 4 AND JMSDeliveryMode = 'PERSISTENT'").needs_body
    assert not compile_selector("1 = 1").needs_body
    assert compile_selector("JMSPriority > 4 OR JMSType = 'x'").needs_body


def test_a_selector_keeps_its_text() -> None:
    assert compile_selector(" one =  1").text == " one =  1"
    assert repr(compile_selector("one = 1")) == "<Selector 'one = 1'>"


def test_short_circuits_ask_for_no_more_names_than_needed() -> None:
    asked: list[str] = []

    class Watched(Fields):
        def __missing__(self, name: str) -> object:
            asked.append(name)
            return None

    assert not compile_selector("first = 1 AND second = 2").matches(Watched(first=2))
    assert compile_selector("first = 2 OR second = 2").matches(Watched(first=2))
    assert asked == []
