"""Who is offered what."""

from __future__ import annotations

import pytest

from acquit.broker.doors import is_loopback, mechanisms
from acquit.broker.options import Security, Where


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        (("127.0.0.1", 5), True),
        (("127.8.9.1", 5), True),
        (("::1", 5, 0, 0), True),
        (("192.0.2.1", 5), False),
        (("fe80::1%eth0", 5, 0, 3), False),
        (("nonsense", 5), False),
        ("/run/acquit.sock", True),
    ],
)
def test_loopback(address: object, expected: bool) -> None:
    assert is_loopback(address) is expected


@pytest.mark.parametrize(
    ("anonymous", "scram", "plain", "loopback", "encrypted", "users", "offered"),
    [
        ("loopback", "always", "loopback", True, False, False, ("ANONYMOUS",)),
        ("loopback", "always", "loopback", True, False, True, ("SCRAM-SHA-256", "PLAIN", "ANONYMOUS")),
        ("loopback", "always", "loopback", False, False, True, ("SCRAM-SHA-256",)),
        ("loopback", "always", "loopback", False, True, True, ("SCRAM-SHA-256", "PLAIN")),
        ("loopback", "loopback", "loopback", False, False, True, ()),
        ("never", "never", "loopback", True, False, True, ("PLAIN",)),
        ("never", "never", "never", True, False, True, ()),
        ("never", "never", "never", True, True, True, ("PLAIN",)),
        ("always", "always", "always", False, False, True, ("SCRAM-SHA-256", "PLAIN", "ANONYMOUS")),
        ("always", "always", "always", False, True, False, ("ANONYMOUS",)),
    ],
)
def test_mechanisms(
    anonymous: Where, scram: Where, plain: Where, loopback: bool, encrypted: bool, users: bool, offered: tuple[str, ...]
) -> None:
    security = Security(anonymous=anonymous, scram=scram, plain=plain)
    assert mechanisms(security, loopback=loopback, encrypted=encrypted, passwords=users) == offered
    with_certificate = mechanisms(security, loopback=loopback, encrypted=encrypted, passwords=users, certified=True)
    assert with_certificate == ("EXTERNAL", *offered)
