"""Security options: listeners, TLS, users and their roles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, Literal

from acquit.broker.options.checks import check_fields, check_host, check_pattern, take_paths
from acquit.errors import ConfigurationError

Where = Literal["never", "loopback", "always"]
"""Peers that are offered a SASL mechanism: none, those on this machine, all."""
WhereAnonymous = Literal["until-users", "never", "loopback", "always"]
"""The same; *until-users* is peers on this machine as long as there is no user, and then nobody."""


@dataclass(frozen=True, kw_only=True, slots=True)
class User:
    """A user who may log in."""

    password: str = field(default="", repr=False)
    """The password itself, or its verifier, ``SCRAM-SHA-256$iterations:salt$stored key:server key`` with base64 but for
    the number, from which it cannot be read: see `users.Verifier`. Empty: none; such a user logs in by TLS certificate
    alone."""

    roles: tuple[str, ...] = ()
    """Names of roles: the user may do what any of them may."""

    any_user_id: bool = False
    """True if messages of this user may have another ``user-id``: for programs that forward those of others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """The permissions of those who have a role: for each permission, patterns of the addresses where they may. In a
    pattern ``*`` is one word between dots, ``#`` any number of words."""

    send: tuple[str, ...] = ()
    """Send messages there."""

    consume: tuple[str, ...] = ()
    """Take messages from there."""

    browse: tuple[str, ...] = ()
    """Look at messages there, and at what the management node tells of queues."""

    create: tuple[str, ...] = ()
    """Make a node that does not exist, by using its address."""

    delete: tuple[str, ...] = ()
    """Delete a queue or a topic. A durable subscription is ended by whoever may consume from it."""

    manage: tuple[str, ...] = ()
    """Operations of the management node on queues: purge them, for one. ``#`` includes what concerns the whole
    broker."""

    def __post_init__(self) -> None:
        for permission in PERMISSIONS:
            for pattern in getattr(self, permission):
                check_pattern(permission, pattern)


PERMISSIONS: Final = tuple(spec.name for spec in fields(Role))


@dataclass(frozen=True, kw_only=True, slots=True)
class Security:
    """Users, roles and the mechanisms by which peers log in."""

    anonymous: WhereAnonymous = "until-users"
    """SASL ANONYMOUS, and peers that begin without SASL. ``"until-users"``: peers on this machine, as long as there is
    no user, and then nobody."""

    scram: Where = "always"
    """SASL SCRAM-SHA-256, which shows the password to nobody; without TLS it protects nothing but the password."""

    plain: Where = "loopback"
    """SASL PLAIN without TLS, which shows the password to the network. With TLS it is always offered."""

    users: Mapping[str, User] = field(default_factory=dict)
    """Users by name."""

    users_file: str = ""
    """More users: a file that `acquit user` keeps. Empty: ``users.toml`` in the data folder, if it is there."""

    roles: Mapping[str, Role] = field(default_factory=dict)
    """Roles by name. Without any, everybody who comes in may do everything; with one, nobody may do what no role of
    theirs names, and who comes in anonymously has the role ``anonymous``, if there is one."""

    verify_user_id: bool = True
    """True to refuse a message whose ``user-id`` is not the user who sends it, where there are users."""

    verifications_max: int = 64
    """Passwords that wait to be verified; a peer beyond is refused, and may try again."""

    refusal_delay_ms: int = 300
    """Milliseconds that a peer whose login failed waits for its answer."""

    login_delay_ms_max: int = 30_000
    """Longest wait of a login before it is decided. After some failed logins of a user from one address, and after more
    of any from there, each further login waits 0.6 s, and twice as long each time, up to this. 0: none waits."""

    @property
    def lets_in_anonymous(self) -> Where:
        """Peers that may come in without being a user. Users of the users file are among `users` by the time it is
        asked."""
        if self.anonymous != "until-users":
            return self.anonymous
        return "never" if self.users else "loopback"

    def __post_init__(self) -> None:
        take_paths(self, "users_file")
        check_fields(
            self,
            {"verifications_max": (1, 1 << 20), "refusal_delay_ms": (0, 10_000), "login_delay_ms_max": (0, 3_600_000)},
        )
        for name in self.users:
            if not name or "\0" in name:
                raise ConfigurationError(f"users: expected names without NUL that are not empty, found {name!r}")
        for name in self.roles:
            if not name:
                raise ConfigurationError("roles: expected names that are not empty, found ''")


TlsMode = Literal["off", "offered", "required", "immediate"]
"""TLS on a listener: none; if the peer asks for it by AMQP's TLS header (5.2.1); only then; from the first byte."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Listen:
    """A listener of the broker. With any of these, ``--host`` and ``--port`` are not used."""

    host: str = "127.0.0.1"
    """A name or an address of this machine."""

    port: int = 5672
    """0: a free one."""

    tls: TlsMode = "off"
    """"immediate": TLS from the first byte, which is ``amqps://``. "offered": AMQP in the clear, or with TLS if the
    peer begins with AMQP's TLS header; "required": only that. All but "off" need a certificate in ``[tls]``."""

    def __post_init__(self) -> None:
        check_fields(self, {"port": (0, 65_535)})
        check_host("host", self.host)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tls:
    """TLS, 1.2 or later. Both files, or none; in a configuration file, where the table is there, both."""

    certificate_file: str = ""
    """The certificate chain, in PEM."""

    key_file: str = ""
    """Private key of the certificate, in PEM, without a passphrase."""

    mode: TlsMode = "immediate"
    """TLS on the port that ``--port`` names, where there is a certificate; as ``tls`` of ``[[listen]]``."""

    client_certificates: Literal["none", "optional", "required"] = "none"
    """Client certificates: whether peers are asked for one, and whether they must have one. A peer with one that names
    a user may log in as that user with SASL EXTERNAL."""

    client_ca_file: str = ""
    """Certificates of the authorities that sign those of peers, in PEM."""

    client_name: Literal["common-name", "dns", "email", "uri"] = "common-name"
    """Name of the user in a peer's certificate: the common name of its subject, or the one alternative name of this
    kind."""

    def __post_init__(self) -> None:
        take_paths(self, "certificate_file", "key_file", "client_ca_file")
        check_fields(self)
        if bool(self.certificate_file) != bool(self.key_file):
            raise ConfigurationError("key_file: expected together with certificate_file, found only one of them")
        if bool(self.client_ca_file) != (self.client_certificates != "none"):
            raise ConfigurationError(
                "client_ca_file: expected together with client_certificates, found only one of them"
            )
        if self.client_ca_file and not self.certificate_file:
            raise ConfigurationError("client_certificates: expected a certificate_file as well, found none")


__all__ = ["PERMISSIONS", "Listen", "Role", "Security", "Tls", "TlsMode", "User", "Where", "WhereAnonymous"]
