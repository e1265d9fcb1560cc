"""The listening sockets, and each new socket before its peer has said who it is.

Theory of operation. A `NewSocket` is the first protocol of a socket. Where the listener has TLS it sees to that: at
once, or when the peer asks for it with AMQP's TLS header (specification 5.2.1). Then it looks: which SASL mechanisms a
peer is offered depends on where it comes from, whether TLS protects it, and whom its certificate names. What it finds
goes to the server, which puts the pump with the right engine in its place. What a peer can do before it is known is
bounded: by number, by time (for TLS and everything behind it together) and by bytes.

`Keys` is all that decides who comes in, and what they may do then. It is made from options and files as a whole, which
raises for what cannot be, and changes nothing before it is put to use.
"""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import re
import ssl
import time
from binascii import a2b_base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from acquit.broker.access.logins import ANONYMOUS, EXTERNAL, PLAIN, SCRAM
from acquit.broker.access.permissions import Permissions, build_permissions, naming
from acquit.broker.access.unauthenticated import Slot, Unauthenticated
from acquit.broker.access.users import Users, prepared
from acquit.broker.access.users_file import NAME, UsersFile, load_users
from acquit.broker.access.validity import Validity, read_authorities, read_validity
from acquit.broker.notices import Notices
from acquit.broker.options import BrokerOptions, Listen, Security, Tls, TlsMode, Where
from acquit.errors import ConfigurationError
from acquit.protocol.constants import TLS_HEADER
from acquit.protocol.sasl import SaslServerOptions
from acquit.transport.pump import Pump, endpoint_name
from acquit.transport.reasons import reason
from acquit.transport.sockets import Acceptor, HeaderReader, bind
from acquit.transport.tls import TlsStream
from acquit.transport.turnstile import Turnstile

logger = logging.getLogger("acquit.broker")

_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Cipher suites for TLS 1.2: those of RFC 9325 (4.2), which encrypt and authenticate in one step, and whose keys are of
no use later. Python's own list has some in two steps (CBC) for peers that are older than TLS 1.2."""
_SUBJECT_NAMES: Final = {"dns": "DNS", "email": "email", "uri": "URI"}
"""Kinds of alternative names, as the standard library calls them."""
_CERTIFICATE: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]*CERTIFICATE-----(.+?)-----END", re.DOTALL)
TLS_FILES: Final = ("certificate_file", "key_file", "client_ca_file")


@dataclass(frozen=True, slots=True)
class PeerFacts:
    """Facts about a peer's socket that decide how it may log in. They outlast its transport, which may be gone before
    the peer is."""

    loopback: bool
    encrypted: bool
    certificate: Mapping[str, object] | None
    """The one that TLS has verified; None or empty where there is none."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Users, permissions and TLS: all that decides who comes in, and what they may do. Made by `make_keys`."""

    security: Security
    """Security options, with the users of the users file."""
    users: Users
    users_file: Path | None
    """Users file that has users; None where none has."""
    permissions: Permissions
    client_name: str
    """The part of a certificate that names the user."""
    tls: ssl.SSLContext | None
    validities: tuple[Validity, ...]
    """Times for which certificates are valid: that of this broker, where there is one that tells, and those of the
    authorities in its file."""
    tls_files: Mapping[str, bytes]
    """A hash of what each TLS file has, by its key in ``[tls]``; without those that came through a pipe."""
    authorities: frozenset[bytes]
    """Certificates by which those of peers are trusted. One may be a peer's own."""

    def named(self, facts: PeerFacts) -> str | None:
        """Return the name in the certificate of a peer, as far as certificates are asked for; None without one."""
        if not facts.encrypted or self.tls is None or self.tls.verify_mode is ssl.CERT_NONE:
            return None
        return certified_name(facts.certificate, self.client_name)

    def offered(self, facts: PeerFacts) -> tuple[str, ...]:
        """Return the mechanisms that a peer is offered, the strongest first; () for one that cannot come in."""
        return mechanisms(
            self.security,
            loopback=facts.loopback,
            encrypted=facts.encrypted,
            passwords=self.users.have_passwords,
            certified=(self.named(facts) or "") in self.users,
        )

    def still_lets_in(self, user: str | None, mechanism: str, facts: PeerFacts, before: Keys) -> bool:
        """True if a user who came in with the keys before would come in with these by the same mechanism ("": without
        SASL), with the same rights. A certificate is not verified again: one may be of an authority that is gone."""
        if self.permissions.of(user) != before.permissions.of(user):
            return False
        if (mechanism or ANONYMOUS) not in self.offered(facts):
            return False
        if user is None:
            return True
        if mechanism == EXTERNAL and (self.named(facts) != user or not self.trusts_all_of(before)):
            return False
        now, then = self.security.users.get(user), before.security.users.get(user)
        return now is not None and then is not None and now.password == then.password

    def trusts_all_of(self, before: Keys) -> bool:
        """True if each authority counts that did with the keys before."""
        return before.authorities <= self.authorities


def make_keys(options: BrokerOptions, data: Path, before: Keys | None = None) -> Keys:
    """Read the users file and the TLS files, and put together what they and the options say. `data` is the folder that
    users.toml is looked for in; `before`: what a running broker goes by. Slow: passwords that stand in the clear are
    hashed.

    Raises ConfigurationError for what cannot be; nothing is changed.
    """
    _check_names(options)
    security = options.security
    path = Path(security.users_file) if security.users_file else data / NAME
    found = _find_users(path, needed=bool(security.users_file))
    if found is None and before is not None and before.users_file == path and not security.users:
        raise ConfigurationError(f"users_file: {path}: expected the file, which had users, found none")
    had_users = before is not None and before.security.users
    if found is None and had_users and not security.users and security.anonymous == "until-users":
        raise ConfigurationError(
            "users: expected some, as the configuration had, found none: was it cut off? security.anonymous says who "
            "comes in where there are to be none"
        )
    found = found or UsersFile()
    with naming(path):
        build_permissions(replace(security, users=found.users))
    for name in found.users:
        if name in security.users:
            raise ConfigurationError(
                f"users.{name}: expected in one place, found in the configuration and in the users file"
            )
    security = replace(security, users={**security.users, **found.users})
    users = Users({name: user.password for name, user in security.users.items()}, decoy_key=found.secret)
    tls = make_tls_context(options.tls)
    contents = _read_again(options.tls)
    authorities: set[bytes] = set()
    if tls is not None:  # which has found them sound, and tells of those with the CA flag alone
        authorities.update(tls.get_ca_certs(binary_form=True))
        authorities.update(map(a2b_base64, _CERTIFICATE.findall(contents.get("client_ca_file", b""))))
    return Keys(
        security,
        users,
        path if found.users else None,
        build_permissions(security),
        options.tls.client_name,
        tls,
        _validities(tls, options.tls.certificate_file, contents.get("certificate_file", b""))
        if tls is not None
        else (),
        {key: hashlib.sha256(content).digest() for key, content in contents.items()},
        frozenset(authorities),
    )


def _validities(tls: ssl.SSLContext, file: str, content: bytes) -> tuple[Validity, ...]:
    own = read_validity(tls, file)
    signers = map(a2b_base64, _CERTIFICATE.findall(content)[1:])
    return (*([own] if own is not None else []), *read_authorities(signers, file))


def _check_names(options: BrokerOptions) -> None:
    """Raise ConfigurationError, with the key, for a file that no system opens."""
    tls = {f"tls.{key}": getattr(options.tls, key) for key in TLS_FILES}
    for key, file in {"security.users_file": options.security.users_file, **tls}.items():
        if "\0" in file:
            raise ConfigurationError(f"{key}: expected the name of a file, found {file!r}")


def _find_users(path: Path, *, needed: bool) -> UsersFile | None:
    """Read the users file; None where it is not there, unless it is `needed`: that one may be a pipe."""
    if not needed and path.exists() and not path.is_file():
        raise ConfigurationError(f"users_file: {path}: expected a file, found something else")
    try:
        found = load_users(path)
    except FileNotFoundError:
        if needed:
            raise ConfigurationError(f"users_file: {path}: there is no such file") from None
        return None
    if not found.states_users:  # cut off, as by a disk that was full: to go on without users would let in anybody
        raise ConfigurationError(
            f"users_file: {path}: expected users, found none: was it cut off? A line [users] says that "
            "there are to be none"
        )
    return found


def make_tls_context(tls: Tls) -> ssl.SSLContext | None:
    """Return the TLS context that the options ask for, or None. Raises ConfigurationError for files that do not fit."""
    if not tls.certificate_file:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION  # it costs us more than whoever asks for it
    expected = f"a certificate and its key in {tls.certificate_file} and {tls.key_file}"
    try:
        context.load_cert_chain(tls.certificate_file, tls.key_file, password=_no_passphrase)
        if tls.client_ca_file:
            expected = f"certificates in {tls.client_ca_file}"
            context.load_verify_locations(tls.client_ca_file)
            if context.cert_store_stats()["crl"]:  # OpenSSL would leave it at that
                raise ConfigurationError(
                    f"tls.client_ca_file: {tls.client_ca_file}: expected certificates alone, found a revocation list: "
                    "none is looked at. Who is to come in no more is taken out of the users"
                )
            context.verify_mode = ssl.CERT_REQUIRED if tls.client_certificates == "required" else ssl.CERT_OPTIONAL
    except ssl.SSLError as exc:
        raise ConfigurationError(f"tls: expected {expected}, in PEM, found {exc.reason or exc}") from exc
    except OSError as exc:
        file = _unreadable(tls.certificate_file, tls.key_file, tls.client_ca_file)
        raise ConfigurationError(f"tls: {file}: cannot be read: {exc.strerror}") from exc
    return context


def _unreadable(*files: str) -> str:
    """Return the first of these files that cannot be read: OpenSSL does not say which it was."""
    for file in files:
        try:
            Path(file).open("rb").close()
        except OSError:
            return file
    return files[0]


def _read_again(tls: Tls) -> dict[str, bytes]:
    """Return what the TLS files have, by key, without those that can be read once alone. Raises ConfigurationError."""
    found = {}
    for key in TLS_FILES:
        path = Path(getattr(tls, key))
        try:
            if path.is_file():
                found[key] = path.read_bytes()
        except OSError as exc:
            raise ConfigurationError(f"tls: {path}: cannot be read: {exc.strerror}") from exc
    return found


def _no_passphrase() -> str:
    """OpenSSL would ask for it on the terminal."""
    raise ConfigurationError("tls: key_file: expected a key without a passphrase")


def certified_name(certificate: Mapping[str, object] | None, kind: str) -> str | None:
    """The name in a certificate that TLS has verified, as ``SSLSocket.getpeercert`` gives it; None where there is none,
    or several of the kind, of which nobody could say which is meant."""
    if not certificate:
        return None
    if kind == "common-name":
        names = [
            value
            for part in certificate.get("subject", ())  # type: ignore[attr-defined]
            for name, value in part
            if name == "commonName"
        ]
    else:
        wanted = _SUBJECT_NAMES[kind]
        names = [value for name, value in certificate.get("subjectAltName", ()) if name == wanted]  # type: ignore[attr-defined]
    return prepared(names[0]) or None if len(names) == 1 else None


def is_loopback(address: object) -> bool:
    """True if a socket address is on this machine. The path of a Unix socket is."""
    match address:
        case (str(host), *_):
            try:
                return ipaddress.ip_address(host.partition("%")[0]).is_loopback
            except ValueError:
                return False
        case _:
            return True


def mechanisms(
    security: Security, *, loopback: bool, encrypted: bool, passwords: bool, certified: bool = False
) -> tuple[str, ...]:
    """Return the mechanisms that a peer is offered, the strongest first; () for one that cannot come in.

    `passwords`: there are users who have one; `certified`: its TLS certificate names a user.
    """

    def allowed(where: Where) -> bool:
        return where == "always" or (where == "loopback" and loopback)

    offered = []
    if certified:
        offered.append(EXTERNAL)
    if passwords and allowed(security.scram):
        offered.append(SCRAM)
    if passwords and (encrypted or allowed(security.plain)):
        offered.append(PLAIN)
    if allowed(security.lets_in_anonymous):
        offered.append(ANONYMOUS)
    return tuple(offered)


@dataclass(frozen=True, slots=True)
class Caller:
    """A socket that may come in: what was found out about it."""

    transport: asyncio.Transport
    facts: PeerFacts
    sasl: SaslServerOptions
    certified: str | None
    """The user that its certificate names."""
    since: float
    """Time when the socket was connected, by the loop's clock."""
    place: Slot
    """Place of the socket among those that are not known yet."""


Enter = Callable[[Caller], Pump]


class Listeners:
    """All sockets that listen, and those that are not in yet."""

    def __init__(
        self, keys: Keys, *, timeout_s: float, unauthenticated: Unauthenticated, notices: Notices, enter: Enter
    ) -> None:
        """`timeout_s`: from the connect to TLS; `enter` gives a caller's pump. Methods belong to the running loop."""
        self.keys = keys
        self.timeout_s = timeout_s
        self.unauthenticated = unauthenticated
        self.notices = notices
        self.loop = asyncio.get_running_loop()
        self._enter = enter
        self.handshakes = Turnstile(self.loop, 1)
        self.arriving: set[NewSocket] = set()
        self._listeners: list[tuple[Listen, Acceptor]] = []
        self._out_of_descriptors = False
        self._bound: list[int] = []
        """The port of each listener."""

    async def open(self, listens: Sequence[Listen]) -> None:
        """Listen. Raises ConfigurationError where one cannot be listened on; none is then."""
        try:
            for one in listens:
                sockets = await bind(one.host, one.port)
                self._listeners.append((one, Acceptor(sockets, partial(NewSocket, self, one.tls), self._exhausted)))
                self._bound.append(sockets[0].getsockname()[1])
        except BaseException:
            self.shut()
            raise
        for _, listener in self._listeners:
            listener.start()
        self._look_at_certificate()

    def check(self, keys: Keys) -> None:
        """Raise ConfigurationError where a listener needs the certificate that these keys do not have."""
        if keys.tls is None and any(one.tls != "off" for one, _ in self._listeners):
            raise ConfigurationError("tls.certificate_file: expected one, as listeners need it, found none")

    def replace(self, keys: Keys) -> Keys:
        """Let in by other keys from now on. Gives those before. Raises as `check` does; nothing is changed then."""
        self.check(keys)
        before, self.keys = self.keys, keys
        if not keys.trusts_all_of(before):
            for socket in list(self.arriving):  # whose certificate TLS may be looking at, by the authorities before
                socket.turn_away()
        now = keys.security.lets_in_anonymous
        if now != "never" and before.security.lets_in_anonymous == "never":
            logger.warning("anonymous peers come in from now on", extra={"anonymous": now, "users": len(keys.users)})
        self._look_at_certificate()
        return before

    def _look_at_certificate(self) -> None:
        """Log that the certificate of this broker, or one that peers verify it by, is not valid, or not for long: peers
        tell their own users alone."""
        for validity in self.keys.validities:
            if (complaint := validity.complaint(time.time())) is not None:
                whose = validity.subject if validity.authority else "the certificate of this broker"
                logger.warning("%s %s", whose, complaint, extra={"file": validity.file})

    def shut(self) -> None:
        """Listen no more, at once, and turn away who is not in yet. Twice is once."""
        for _, listener in self._listeners:
            listener.close()
        for socket in list(self.arriving):
            socket.turn_away()

    async def close(self) -> None:
        """The same in order: who was taken from the backlog just before is turned away too."""
        for _, listener in self._listeners:
            listener.close()
            await listener.wait_closed()
        self.shut()

    @property
    def urls(self) -> list[str]:
        """URLs for clients, in the order of the listeners."""
        return [
            f"{'amqps' if one.tls == 'immediate' else 'amqp'}://{endpoint_name((one.host, port))}"
            for one, port in self._ports()
        ]

    @property
    def ports(self) -> list[int]:
        """The ports, in the order of the listeners."""
        return [port for _, port in self._ports()]

    def _ports(self) -> list[tuple[Listen, int]]:
        return [(one, port) for (one, _), port in zip(self._listeners, self._bound, strict=True)]

    def _exhausted(self) -> None:
        if not self._out_of_descriptors:
            self._out_of_descriptors = True
            logger.warning("no file descriptor is left for another connection: those that come have to wait")

    def arrived(self) -> None:
        """A connection was taken."""
        if self._out_of_descriptors:
            self._out_of_descriptors = False
            logger.info("there are file descriptors again: connections are taken")

    def enter(self, transport: asyncio.Transport, since: float, place: Slot) -> Pump | None:
        """Look at who it is: the protocol for those who may go on."""
        keys = self.keys
        name = transport.get_extra_info("peername")
        encrypted = transport.get_extra_info("ssl_object")
        certificate = None if encrypted is None else encrypted.getpeercert()
        facts = PeerFacts(is_loopback(name), encrypted is not None, certificate)
        certified = keys.named(facts)
        if certified is not None and certified not in keys.users:
            self.notices.inform(
                "a certificate names nobody who is known", place.network, peer=endpoint_name(name), named=certified
            )
            certified = None
        offered = keys.offered(facts)
        if not offered:
            self.notices.warn("a connection is turned away: it could not log in", peer=endpoint_name(name))
            return None
        sasl = SaslServerOptions(mechanisms=offered, required=ANONYMOUS not in offered)
        return self._enter(Caller(transport, facts, sasl, certified, since, place))


class NewSocket(HeaderReader):
    """The first protocol of a socket."""

    def __init__(self, owner: Listeners, mode: TlsMode) -> None:
        super().__init__()
        self._owner = owner
        self._mode = mode
        self._since = owner.loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take a new socket."""
        super().connection_made(transport)
        self._owner.arrived()
        self._place = self._owner.unauthenticated.enter(transport.get_extra_info("peername"), self.turn_away)
        if self._mode == "off":
            self._let_in(self.transport)
        else:
            self._owner.arriving.add(self)
            self._timer = self._owner.loop.call_later(self._owner.timeout_s, self.turn_away)
            if self._mode == "immediate":
                self._done = True
                self._begin_tls()

    def turn_away(self) -> None:
        """Close the socket: its time is over, or the listeners close."""
        self._leave()
        if self._task is not None:
            self._task.cancel()
        self.transport.abort()

    def on_lost(self) -> None:
        """The peer has left before it said what it wants."""
        self._leave()

    def _leave(self, *, inside: bool = False) -> None:
        """Take the socket off the list of those that are not in: its connection has a pump now, or it is gone."""
        self._owner.arriving.discard(self)
        if not inside:
            self._place.leave()
        if self._timer is not None:
            self._timer.cancel()

    def on_header(self, header: bytes) -> None:
        """The peer says which protocol it begins with."""
        if header == TLS_HEADER:
            self.transport.write(TLS_HEADER)
            self._begin_tls()
            self.transport.resume_reading()
        elif self._mode == "required":
            # 2.2: answer with a header that we do take, and close.
            self.transport.write(TLS_HEADER)
            self._owner.notices.warn("a connection is turned away: it must use TLS", peer=self._name(self.transport))
            self._leave()
            self.transport.close()
        else:
            inside = self._let_in(self.transport)
            if inside is not None:
                inside.data_received(header)
                self.transport.resume_reading()

    def _let_in(self, transport: asyncio.Transport) -> Pump | None:
        inside = self._owner.enter(transport, self._since, self._place)
        self._leave(inside=inside is not None)
        if inside is None:
            transport.abort()
        else:
            transport.set_protocol(inside)
            inside.connection_made(transport)
        return inside

    def _begin_tls(self) -> None:
        context = self._owner.keys.tls
        assert context is not None
        tls = TlsStream(context, server_side=True, handshakes=self._owner.handshakes)
        tls.take(self.transport)
        self._task = self._owner.loop.create_task(self._go_on(tls))

    async def _go_on(self, tls: TlsStream) -> None:
        try:
            await tls.agree()
        except OSError as exc:
            self._owner.notices.warn("no TLS with a peer", peer=self._name(self.transport), reason=reason(exc))
            exc.__traceback__ = None  # it holds this frame, and so what is TLS's
            self._leave()
            return
        except BaseException:
            self._leave()
            raise
        inside = self._owner.enter(tls, self._since, self._place)
        self._leave(inside=inside is not None)
        if inside is None:
            tls.abort()
        else:
            tls.give_to(inside)

    @staticmethod
    def _name(transport: asyncio.Transport) -> str:
        return endpoint_name(transport.get_extra_info("peername"))


__all__ = [
    "Caller",
    "Keys",
    "Listeners",
    "certified_name",
    "is_loopback",
    "make_keys",
    "make_tls_context",
    "mechanisms",
]
