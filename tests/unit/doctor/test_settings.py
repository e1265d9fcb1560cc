from __future__ import annotations

from pathlib import Path

import pytest

from acquit.broker.access.listeners import make_keys
from acquit.broker.access.users_file import editing
from acquit.broker.admin.reload import load
from acquit.broker.configuration import load_options
from acquit.broker.options import BrokerOptions, Tls, User
from acquit.doctor import settings
from acquit.doctor.findings import Diagnosis, Severity


def examined(folder: Path, text: str) -> list[Diagnosis]:
    config = folder / "acquit.toml"
    config.write_text(text)
    config.chmod(0o600)
    options, keys = load(config, BrokerOptions(), folder)
    return list(settings.examine(config, options, keys))


def test_the_defaults_are_no_risk(tmp_path: Path) -> None:
    options, keys = load(None, BrokerOptions(), tmp_path)
    (found,) = settings.examine(None, options, keys)
    assert (found.severity, found.found) == (Severity.OK, "no file (--config): the defaults")


def test_a_careful_file(tmp_path: Path) -> None:
    (found,) = examined(tmp_path, '[users.ada]\npassword = "x"\nroles = ["all"]\n[roles.all]\nsend = ["#"]\n')
    assert found.severity is Severity.OK
    assert "users: 1, roles: 1, no TLS" in found.found


TLS = Path(__file__).parents[2] / "support" / "tls"
CERTIFIED = f'[tls]\ncertificate_file = "{TLS / "certificate.pem"}"\nkey_file = "{TLS / "key.pem"}"\n'
RISKY = [
    ('[security]\nanonymous = "always"', "security.anonymous"),
    ('[security]\nplain = "always"', "security.plain"),
    ('[users.a]\npassword = "x"\n[[listen]]\nhost = "0.0.0.0"', "without TLS"),
    ('[users.a]\npassword = "x"\n[[listen]]\nhost = "broker"', "without TLS"),
    (f"{CERTIFIED}[[listen]]", "no listener uses it"),
    (f'{CERTIFIED}mode = "off"', "no listener uses it"),
    ('[users.a]\npassword = "x"', "no roles"),
    ("[security]\nverify_user_id = false", "verify_user_id"),
    ("[security]\nlogin_delay_ms_max = 0", "login_delay_ms_max"),
    ("[connection]\nidle_timeout_ms = 0", "idle_timeout_ms"),
    ("[journal]\nreserve_segments = 0", "reserve_segments"),
    ("[journal]\narchive_bytes_max = 0", "archive keeps nothing"),
    ("[journal]\narchive_age_max_s = 0", "archive keeps nothing"),
    ('[[address]]\nmatch = "a"\ndead_letter_address = ""', "dropped"),
]


@pytest.mark.parametrize(("text", "said"), RISKY)
def test_a_risk_is_named_with_what_to_do(tmp_path: Path, text: str, said: str) -> None:
    risks = [found for found in examined(tmp_path, text) if found.severity is Severity.WARNING]
    assert any(said in found.found and found.advice for found in risks), risks


def test_every_risk_has_its_case() -> None:
    assert [found for _, found, _ in settings.RISKS if not any(said in found for _, said in RISKY)] == []


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_who_listens_on_this_machine_needs_no_tls(tmp_path: Path, host: str) -> None:
    assert len(examined(tmp_path, f'[[listen]]\nhost = "{host}"')) == 1


@pytest.mark.parametrize("user", ['[[listen]]\ntls = "offered"', "[[listen]]\n[http]", ""])
def test_a_certificate_that_is_used_is_no_risk(tmp_path: Path, user: str) -> None:
    assert not any("no listener uses it" in one.found for one in examined(tmp_path, CERTIFIED + user))


def test_passwords_that_others_may_read(tmp_path: Path) -> None:
    text = '[users.ada]\npassword = "{}"\nroles = ["all"]\n[roles.all]\nsend = ["#"]\n'
    config = tmp_path / "acquit.toml"
    for password, risky in (("x", True), ("SCRAM-SHA-256$4096:c2FsdA==$c3RvcmVk:c2VydmVy", False)):
        config.write_text(text.format(password))
        config.chmod(0o644)
        options = load_options(config)
        _, keys = load(None, BrokerOptions(), tmp_path)
        found = list(settings.examine(config, options, keys))
        assert any("others may read it" in one.found for one in found) == risky


def test_keys_that_everybody_may_read(tmp_path: Path) -> None:
    key, users = tmp_path / "key.pem", tmp_path / "users.toml"
    certificate = Path(__file__).parents[2] / "support" / "localhost.pem"
    key.write_bytes(certificate.read_bytes())
    with editing(users) as content:
        content.users["ada"] = User()
    options = BrokerOptions(tls=Tls(certificate_file=str(certificate), key_file=str(key)))
    keys = make_keys(options, tmp_path)
    for mode, risky in ((0o644, True), (0o640, False)):
        for file in (key, users):
            file.chmod(mode)
        found = [one.found for one in settings.examine(None, options, keys) if "may read it" in one.found]
        files = (f"tls.key_file, {key}", f"the users file, {users}")
        expected = [f"{file}: everybody on this machine may read it" for file in files]
        assert found == (expected if risky else [])


def test_an_authority_that_has_expired(tmp_path: Path) -> None:
    support, chain = Path(__file__).parents[2] / "support" / "tls", tmp_path / "chain.pem"
    chain.write_text((support / "certificate.pem").read_text() + (support / "chain.pem").read_text())
    options = BrokerOptions(tls=Tls(certificate_file=str(chain), key_file=str(support / "key.pem")))
    (found,) = [
        one.found for one in settings.examine(None, options, make_keys(options, tmp_path)) if "2022" in one.found
    ]
    whose = "the certificate of its authority 'acquit test intermediate'"
    assert found == f"tls.certificate_file, {chain}: {whose} expired on 2022-01-01 00:00 UTC: peers refuse it"


def test_a_certificate_that_has_expired(tmp_path: Path) -> None:
    support = Path(__file__).parents[2] / "support"
    for certificate, shown in ((support / "tls" / "expired.pem", True), (support / "localhost.pem", False)):
        options = BrokerOptions(tls=Tls(certificate_file=str(certificate), key_file=str(certificate)))
        found = [one.found for one in settings.examine(None, options, make_keys(options, tmp_path))]
        text = f"tls.certificate_file, {certificate}: the certificate expired on 2021-01-01 00:00 UTC: peers refuse it"
        assert (text in found) is shown
