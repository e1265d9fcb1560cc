"""Checks of the configuration: settings that are valid, and risky."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from time import time
from typing import Final

from acquit.broker.access.listeners import Keys
from acquit.broker.options import BrokerOptions
from acquit.doctor.findings import Diagnosis, ok, warning

_OTHERS: Final = 0o077
_ALL: Final = 0o007
"""A group often is the service's own, for its keys above all."""


def examine(config: Path | None, options: BrokerOptions, keys: Keys) -> Iterator[Diagnosis]:
    """Yield what is found of a valid configuration. `keys` has its users, and those of the users file."""
    if config is None:
        yield ok("configuration", "no file (--config): the defaults")
    else:
        yield ok("configuration", f"{config} is valid: address rules: {len(options.address)}, {_users(keys)}")
        if config.stat().st_mode & _OTHERS and any(_plain(user.password) for user in options.security.users.values()):
            yield warning(
                "configuration",
                f"{config} has passwords, and others may read it",
                f"chmod 600 {config}, or acquit user",
            )
    for what, file in (("tls.key_file", options.tls.key_file), ("the users file", keys.users_file)):
        if file and Path(file).stat().st_mode & _ALL:
            yield warning("settings", f"{what}, {file}: everybody on this machine may read it", f"chmod o= {file}")
    for validity in keys.validities:
        if (complaint := validity.complaint(time())) is not None:
            found = f"tls.certificate_file, {validity.file}: {validity.subject} {complaint}"
            yield warning("settings", found, "put a new one in its place, and acquit config reload")
    for risky, found, advice in RISKS:
        if risky(options, keys):
            yield warning("settings", found, advice)
    for rule in options.address:
        if rule.settings.get("dead_letter_address") == "":
            yield warning(
                "settings",
                f"dead_letter_address is empty at {rule.match!r}: what is rejected there is dropped",
                "name a queue, unless that is meant",
            )


def _users(keys: Keys) -> str:
    users, roles = len(keys.security.users), len(keys.security.roles)
    return f"users: {users}, roles: {roles}, {'TLS' if keys.tls is not None else 'no TLS'}"


def _plain(password: str) -> bool:
    return bool(password) and not password.startswith("SCRAM-SHA-256$")


def _open_listener(options: BrokerOptions) -> bool:
    """Return whether a listener beyond this machine takes connections in the clear."""
    return any(listen.tls in ("off", "offered") and not _loopback(listen.host) for listen in options.listen)


def _uses_tls(options: BrokerOptions) -> bool:
    """Return whether there is a listener, or the HTTP interface, that speaks TLS where there is a certificate."""
    return set(options.tls_modes) != {"off"} or (options.http is not None and options.http.tls)


def _loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


RISKS: Final[tuple[tuple[Callable[[BrokerOptions, Keys], bool], str, str], ...]] = (
    (
        lambda options, keys: keys.security.lets_in_anonymous == "always",
        'security.anonymous = "always" lets in everybody who can connect',
        'set "loopback" or "never"',
    ),
    (
        lambda options, keys: options.security.plain == "always",
        'security.plain = "always" shows passwords to the network where there is no TLS',
        'set "loopback" (with TLS it is offered in any case)',
    ),
    (
        lambda options, keys: _open_listener(options),
        "[[listen]] takes connections from other machines without TLS",
        'set tls = "required" or "immediate" there',
    ),
    (
        lambda options, keys: keys.tls is not None and not _uses_tls(options),
        "[tls] has a certificate, and no listener uses it: AMQP is in the clear",
        'set tls = "immediate" in [[listen]], or tls.mode',
    ),
    (
        lambda options, keys: bool(keys.security.users) and not keys.security.roles,
        "there are users and no roles: each user may do everything",
        "give roles ([roles.NAME])",
    ),
    (
        lambda options, keys: not options.security.verify_user_id,
        "security.verify_user_id = false: anybody may post under the name of another",
        "leave it true, and set any_user_id for those who forward",
    ),
    (
        lambda options, keys: options.security.login_delay_ms_max == 0,
        "security.login_delay_ms_max = 0: passwords can be tried without a pause",
        "leave the default",
    ),
    (
        lambda options, keys: options.connection.idle_timeout_ms == 0,
        "connection.idle_timeout_ms = 0: peers that vanish keep their messages until TCP gives up",
        "leave the default, 30 s",
    ),
    (
        lambda options, keys: options.journal.reserve_segments == 0,
        "journal.reserve_segments = 0: on a full disk nothing can be consumed, either",
        "leave the default, 2",
    ),
    (
        lambda options, keys: options.journal.archive_bytes_max == 0 or options.journal.archive_age_max_s == 0,
        "the archive keeps nothing: the audit and `acquit ledger show` know only the newest messages",
        "set journal.archive_bytes_max and archive_age_max_s",
    ),
)
"""Settings that are valid and may surprise: whether one is set so, what it does, and what to set."""
