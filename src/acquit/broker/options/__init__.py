"""The options of a broker: typed, frozen, validated; one class for each concern.

A value that cannot work raises ConfigurationError naming the field. `configuration` reads these from TOML, where each
class is a table and each field a key; docs/configuration.md lists them all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Self

from acquit.broker.options.address import POLICY_FIELDS, AddressPolicy, AddressRule
from acquit.broker.options.checks import TIME_MS_MAX, UINT_MAX, check_fields, known_address
from acquit.broker.options.http import Http
from acquit.broker.options.limits import BrokerLimits, ConnectionLimits, TransactionLimits
from acquit.broker.options.security import (
    PERMISSIONS,
    Listen,
    Role,
    Security,
    Tls,
    TlsMode,
    User,
    Where,
    WhereAnonymous,
)
from acquit.errors import ConfigurationError
from acquit.store.options import JournalOptions


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokerOptions:
    """All options of a broker. The defaults are fit for a small machine."""

    connection: ConnectionLimits = field(default_factory=ConnectionLimits)
    limits: BrokerLimits = field(default_factory=BrokerLimits)
    transactions: TransactionLimits = field(default_factory=TransactionLimits)
    security: Security = field(default_factory=Security)
    tls: Tls = field(default_factory=Tls)
    listen: tuple[Listen, ...] = ()
    """Listeners, if not the one host and port that are given beside the options."""
    journal: JournalOptions = field(default_factory=JournalOptions)
    address: tuple[AddressRule, ...] = ()
    """Rules, in any order: the most specific one that sets a field decides."""

    http: Http | None = None
    """The HTTP interface; None: there is none."""

    stop_timeout_ms: int = 5_000
    """Milliseconds that a stopping broker waits for its peers to close."""

    @classmethod
    def small(cls) -> Self:
        """Return options for brokers that live as long as a test: little disk space is prepared."""
        return cls().with_small_journal()

    def with_small_journal(self) -> Self:
        """Return these options with little disk space prepared, unless they set the journal themselves."""
        return self if self.journal != JournalOptions() else replace(self, journal=JournalOptions.small())

    @property
    def tls_modes(self) -> tuple[TlsMode, ...]:
        """TLS on each listener; without any in `listen`, on the one that is given beside the options."""
        beside: TlsMode = self.tls.mode if self.tls.certificate_file else "off"
        return tuple(one.tls for one in self.listen) or (beside,)

    def __post_init__(self) -> None:
        check_fields(self, {"stop_timeout_ms": (0, TIME_MS_MAX)})
        check_places(self.listen, self.http)
        for listen in self.listen:
            if listen.tls != "off" and not self.tls.certificate_file:
                raise ConfigurationError(f"listen: tls = {listen.tls!r} needs tls.certificate_file, found none")
        if self.http is not None and not self.http.local and self.security.plain != "always":
            if not self.tls.certificate_file:
                raise ConfigurationError(f"http: host = {self.http.host!r} needs tls.certificate_file, found none")
            if not self.http.tls:
                raise ConfigurationError(f"http: host = {self.http.host!r} needs tls = true, found false")
        seen = set()
        for rule in self.address:
            if rule.match in seen:
                raise ConfigurationError(f"address: expected one rule for each pattern, found two for {rule.match!r}")
            seen.add(rule.match)


def check_places(listens: Iterable[Listen], http: Http | None) -> None:
    """Raise ConfigurationError where two would listen on one port of one address. 0.0.0.0 is all addresses of IPv4, ::
    all of IPv6; what another name stands for is not looked up."""
    places = [("listen", one.host, one.port) for one in listens]
    if http is not None:
        places.append(("http", http.host, http.port))
    taken: dict[tuple[object, int], str] = {}
    for table, host, port in places:
        address = known_address(host)
        if isinstance(address, str):
            rivals: tuple[object, ...] = (address,)
        elif address.is_unspecified:
            rivals = (address.version,)  # which each address of this version has left
        else:
            rivals = (address, type(address)(0))
        for other in (taken[rival, port] for rival in rivals if port and (rival, port) in taken):
            where = f"of {host} twice" if known_address(other) == address else f"of {other} and of {host}"
            raise ConfigurationError(f"{table}: expected a port for each, found {port} {where}")
        taken[address, port] = host
        if not isinstance(address, str):
            taken[address.version, port] = host


__all__ = [
    "PERMISSIONS",
    "POLICY_FIELDS",
    "UINT_MAX",
    "AddressPolicy",
    "AddressRule",
    "BrokerLimits",
    "BrokerOptions",
    "ConnectionLimits",
    "Http",
    "Listen",
    "Role",
    "Security",
    "Tls",
    "TlsMode",
    "TransactionLimits",
    "User",
    "Where",
    "WhereAnonymous",
    "check_places",
]
