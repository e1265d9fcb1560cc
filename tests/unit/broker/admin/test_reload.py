"""Reading the configuration again: what is told, what counts at once, what is refused."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import acquit
from acquit.broker.access.listeners import Keys, make_keys
from acquit.broker.access.users_file import editing
from acquit.broker.admin.reload import Applies, differences, effective, load
from acquit.broker.configuration import parse_options
from acquit.broker.core import Core
from acquit.broker.options import AddressRule, BrokerLimits, BrokerOptions, Tls, User
from acquit.broker.server import RELOADED_PER_ROUND, Server
from acquit.cli.connecting import BrokerAt
from acquit.cli.management import management
from acquit.errors import AcquitError, ConfigurationError, ConnectionClosed
from acquit.ledger.events import EventKind
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.extensions import BROKER
from acquit.store.options import JournalOptions
from tests.support.broker_world import World, durable, live_of, posted

OLD = """
[limits]
queues_max = 100

[connection]
credit_max = 10
max_frame_size = 4096

[journal]
segment_bytes = 4_194_304

[users.ada]
password = "secret one"

[[address]]
match = "orders.#"
max_delivery_attempts = 3
"""
NEW = """
[limits]
queues_max = 200

[connection]
credit_max = 20
max_frame_size = 8192

[journal]
segment_bytes = 8_388_608

[users.ada]
password = "secret two"

[users.bob]
password = "secret three"

[[address]]
match = "orders.#"
max_delivery_attempts = 4
non_destructive = true

[[address]]
match = "new"
ring_size = 5
"""


def compare(old: str, new: str, tmp_path: Path) -> list[str]:
    options = [parse_options(text) for text in (old, new)]
    keys = [make_keys(one, tmp_path) for one in options]
    return [str(change) for change in differences(*options, *keys)]


def test_every_key_that_is_different_is_told(tmp_path: Path) -> None:
    assert compare(OLD, NEW, tmp_path) == [
        "address 'new'.ring_size: (default) -> 5",
        "address 'orders.#'.max_delivery_attempts: 3 -> 4",
        "address 'orders.#'.non_destructive: (default) -> true",
        "connection.credit_max: 10 -> 20",
        "connection.max_frame_size: 4096 -> 8192 (to new connections)",
        "journal.segment_bytes: 4194304 -> 8388608 (after a restart)",
        "limits.queues_max: 100 -> 200",
        "users.ada.password: (not shown) -> (not shown)",
        "users.bob.any_user_id: (default) -> false",
        "users.bob.password: (default) -> (not shown)",
        "users.bob.roles: (default) -> ",
    ]
    assert compare(OLD, OLD, tmp_path) == []


def test_no_password_is_told(tmp_path: Path) -> None:
    assert "secret" not in "".join(compare(OLD, NEW, tmp_path))


def test_a_certificate_under_the_same_name_is_told(tmp_path: Path) -> None:
    files = Path(__file__).parents[3] / "support" / "tls"
    both, peers = tmp_path / "both.pem", tmp_path / "peers.pem"
    options = BrokerOptions(
        tls=Tls(
            certificate_file=str(both), key_file=str(both), client_ca_file=str(peers), client_certificates="optional"
        )
    )

    def keys(*authorities: str) -> Keys:
        peers.write_text("".join((files / f"{name}.pem").read_text() for name in authorities))
        return make_keys(options, tmp_path)

    both.write_text((files / "certificate.pem").read_text() + (files / "key.pem").read_text())
    old, same = keys("peers-ca"), keys("peers-ca")
    assert differences(options, options, old, same) == []
    both.write_text(both.read_text() + "\n")
    assert [str(change) for change in differences(options, options, old, keys("peers-ca", "certificate"))] == [
        f"tls.certificate_file: {both} -> {both} (other content) (to new connections)",
        f"tls.client_ca_file: {peers} -> {peers} (other content) (to new connections)",
        f"tls.key_file: {both} -> {both} (other content) (to new connections)",
    ]


def test_what_needs_a_restart_stays_as_it_was() -> None:
    old, new = parse_options(OLD), parse_options(NEW)
    now = effective(old, new)
    assert now.journal == old.journal
    assert now.address == new.address
    assert now.connection == new.connection


def test_the_whole_is_checked_first(tmp_path: Path) -> None:
    path = tmp_path / "acquit.toml"
    path.write_text('[tls]\ncertificate_file = "nowhere.pem"\nkey_file = "nowhere.pem"\n')
    with pytest.raises(ConfigurationError, match=r"nowhere\.pem"):
        load(path, BrokerOptions(), tmp_path)
    path.write_text('[[address]]\nmatch = "a"\nring_size = -1\n')
    with pytest.raises(ConfigurationError, match=r"address\[0\]\.ring_size"):
        load(path, BrokerOptions(), tmp_path)


def test_a_role_that_there_is_not_is_named_with_its_file(tmp_path: Path) -> None:
    file, users = tmp_path / "acquit.toml", tmp_path / "users.toml"
    file.write_text('[users.al]\npassword = "x"\nroles = ["none"]\n[roles.clerk]\n')
    with pytest.raises(ConfigurationError) as caught:
        load(file, BrokerOptions(), tmp_path)
    assert str(caught.value) == f"{file}: users.al.roles: no role 'none'; there are clerk"
    file.write_text("[roles.clerk]\n")
    with editing(users) as found:
        found.users["bo"] = User(roles=("none",))
    for refuse in (lambda: load(file, BrokerOptions(), tmp_path), lambda: make_keys(BrokerOptions(), tmp_path)):
        with pytest.raises(ConfigurationError) as caught:
            refuse()
        assert str(caught.value).startswith(f"{users}: users.bo.roles: no role 'none'; there are ")


def test_all_keys_of_a_configuration_say_when_they_apply(tmp_path: Path) -> None:
    options = BrokerOptions()
    other = BrokerOptions(
        stop_timeout_ms=1, limits=BrokerLimits(queues_max=5), journal=JournalOptions(spare_segments=7)
    )
    keys = make_keys(options, tmp_path)
    assert {change.key: change.applies for change in differences(options, other, keys, keys)} == {
        "stop_timeout_ms": Applies.NOW,
        "limits.queues_max": Applies.NOW,
        "journal.spare_segments": Applies.RESTART,
    }


# -- policies of live queues -------------------------------------------------------------------------------------------


def apply(core: Core, *rules: AddressRule, **limits: int) -> None:
    core.apply(BrokerOptions(address=rules, limits=BrokerLimits(**limits)))


def test_a_lower_limit_displaces_what_is_there() -> None:
    world, _ = posted("q", *[durable(number) for number in range(20)])
    apply(world.core, AddressRule("q", {"ring_size": 5}))
    world.settle()
    assert live_of(world, "q") == 5
    assert world.core.queues.by_name["q"].counts[EventKind.DISPLACED] == 15
    apply(world.core, AddressRule("q", {"messages_max": 2, "full_policy": "drop-oldest"}))
    world.settle()
    assert live_of(world, "q") == 2
    world.check_journal()


def test_credit_follows_a_limit_that_is_lifted() -> None:
    world = World(BrokerOptions(address=(AddressRule("q", {"messages_max": 3}),)))
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, durable(1), durable(2), durable(3))
    assert sender.credit == 0
    apply(world.core)
    world.settle()
    assert sender.credit > 500


def test_a_limit_that_is_set_is_kept_by_the_next_posting() -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    client.post_all(sender, durable(1), durable(2))
    apply(world.core, AddressRule("q", {"messages_max": 2}))
    (delivery,) = client.post(sender, durable(3))
    world.settle()
    assert client.outcome(delivery) != ACCEPTED
    assert live_of(world, "q") == 2


def test_last_values_count_from_the_change_on() -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    posted = [durable(number, application_properties={"_AMQ_LVQ_NAME": "a"}) for number in range(4)]
    client.post_all(sender, posted[0], posted[1])
    apply(world.core, AddressRule("q", {"last_value": True}))
    client.post_all(sender, posted[2], posted[3])
    assert live_of(world, "q") == 3
    apply(world.core)
    client.post_all(sender, posted[2], posted[3])
    assert live_of(world, "q") == 5


def test_a_smaller_window_forgets_at_once() -> None:
    world = World()
    client = world.client()
    sender = client.sender("q")
    posted = [durable("x", application_properties={"_AMQ_DUPL_ID": number}) for number in range(4)]
    client.post_all(sender, *posted)
    apply(world.core, AddressRule("q", {"duplicate_window": 1}))
    client.post_all(sender, posted[0], posted[3])
    assert live_of(world, "q") == 6, "3 was the only one in the window, until 0 came"
    assert world.fold().table.windows == world.core.scribe.recorder.table.windows
    apply(world.core, AddressRule("q", {"duplicate_detection": "message-id"}))
    client.post_all(sender, durable("y", message_id="m"), durable("y", message_id="m"))
    assert live_of(world, "q") == 7


def test_a_dead_letter_address_counts_for_the_next_outcome() -> None:
    world, client = posted("q", durable(1))
    apply(world.core, AddressRule("q", {"max_delivery_attempts": 1, "dead_letter_address": "elsewhere"}))
    link = client.receiver("q", credit=1)
    world.settle()
    link.session.settle_all(client.held(link), acquit.Modified(delivery_failed=True))
    world.settle()
    assert live_of(world, "elsewhere") == 1


def test_rules_that_do_not_fit_together_change_nothing() -> None:
    world = World(BrokerOptions(address=(AddressRule("q", {"ring_size": 5}),)))
    with pytest.raises(ConfigurationError):
        apply(world.core, AddressRule("q", {"dead_letter_address": "$nowhere"}))
    assert world.core.policies.policy_of("q").ring_size == 5


# -- a running server --------------------------------------------------------------------------------------------------


async def serve(tmp_path: Path, text: str) -> tuple[Server, Path]:
    path = tmp_path / "acquit.toml"
    path.write_text(text)
    options = await asyncio.to_thread(lambda: load(path, BrokerOptions(), tmp_path)[0])
    server = Server(tmp_path / "data", options, port=0, config=path)
    await server.start()
    return server, path


SMALL = "[journal]\nsegment_bytes = 4_194_304\nreserve_segments = 1\n"


def test_a_server_reads_its_file_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        server, path = await serve(tmp_path, SMALL)
        try:
            assert await server.reload() == []
            path.write_text(SMALL.replace("4_194_304", "8_388_608") + '[[address]]\nmatch = "q"\nring_size = 2\n')
            with caplog.at_level(logging.INFO, "acquit.broker"):
                changes = await server.reload()
            assert [str(change) for change in changes] == [
                "address 'q'.ring_size: (default) -> 2",
                "journal.segment_bytes: 4194304 -> 8388608 (after a restart)",
            ]
            assert "configuration: address 'q'.ring_size: (default) -> 2" in caplog.messages
            assert await server.reload() == changes[1:], "what needs a restart is told again"
            path.write_text('[[address]]\nmatch = "q"\nring_size = "two"\n')
            with pytest.raises(ConfigurationError, match=r"address\[0\]\.ring_size"):
                await server.reload()
            assert server._core.policies.policy_of("q").ring_size == 2
        finally:
            await server.stop()

    asyncio.run(story())


def test_the_management_node_reloads(tmp_path: Path) -> None:
    def ask(url: str) -> object:
        with management(BrokerAt((url,)), 10) as node:
            return node.request("RELOAD", BROKER)

    async def story() -> None:
        server, path = await serve(tmp_path, SMALL)
        try:
            path.write_text(SMALL + "[limits]\nqueues_max = 7\n")
            assert await asyncio.to_thread(ask, server.url) == {
                "changes": [{"key": "limits.queues_max", "old": "10000", "new": "7", "applies": "now"}]
            }
            path.write_text("[limits]\nqueues_max = 0\n")
            with pytest.raises(AcquitError, match=r"limits\.queues_max"):
                await asyncio.to_thread(ask, server.url)
        finally:
            await server.stop()

    asyncio.run(story())


GUARDED = (
    SMALL
    + """
[security]
anonymous = "never"

[roles.clerk]
send = ["q"]

[roles.admin]
manage = ["#"]

[users.ada]
password = "one"
roles = ["admin"]
"""
)


@pytest.mark.parametrize(("old", "new", "key"), [('"one"', '"two"', "password"), ('["admin"]', '["clerk"]', "roles")])
def test_who_is_put_out_by_a_reload_hears_first_what_has_changed(tmp_path: Path, old: str, new: str, key: str) -> None:
    def ask(url: str) -> object:
        with management(BrokerAt((url.replace("//", "//ada:one@"),)), 10) as node:
            return node.request("RELOAD", BROKER)

    async def story() -> None:
        server, path = await serve(tmp_path, GUARDED)
        try:
            path.write_text(GUARDED.replace(old, new))
            told = await asyncio.to_thread(ask, server.url)
            assert isinstance(told, dict)
            assert [change["key"] for change in told["changes"]] == [f"users.ada.{key}"]
            with pytest.raises(AcquitError):
                await asyncio.to_thread(ask, server.url)
        finally:
            await server.stop()

    asyncio.run(story())


def test_who_is_put_out_is_not_served_until_all_queues_have_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go_on(connection: acquit.Connection) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            connection.session().close()

    def stay(url: str, change: Callable[[], object]) -> None:
        options = acquit.ConnectOptions(reconnect=None)
        with acquit.connect(url.replace("//", "//ada:one@"), options=options) as connection:
            change()
            with pytest.raises(ConnectionClosed, match="log in again"):
                go_on(connection)

    async def story() -> None:
        server, path = await serve(tmp_path, GUARDED)
        try:
            loop = asyncio.get_running_loop()
            waiting: list[Callable[[], None]] = []
            monkeypatch.setattr(server._core.administration.adoption, "when_done", waiting.append)
            path.write_text(GUARDED.replace('"one"', '"two"'))
            await asyncio.to_thread(stay, server.url, lambda: loop.call_soon_threadsafe(server.reload_soon))
            assert len(waiting) == 1
        finally:
            await server.stop()

    asyncio.run(story())


def test_a_broker_without_a_file_reads_its_users_again(tmp_path: Path) -> None:
    with (
        acquit.Broker(tmp_path / "data", config=BrokerOptions.small()) as broker,
        management(BrokerAt((broker.url,)), 10) as node,
    ):
        assert node.request("RELOAD", BROKER) == {"changes": []}


def test_users_go_by_intention_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without users anybody of this machine comes in: so a users file that was cut off or is gone changes nothing, and
    the log says when the last user was removed."""
    file = tmp_path / "data" / "users.toml"

    async def story() -> None:
        server, path = await serve(tmp_path, SMALL)
        try:
            with editing(file) as content:
                content.users["ada"] = User()
            await server.reload()
            whole = file.read_text()
            for cut in (0, whole.index("decoy_key"), whole.index("[users"), None):
                if cut is None:
                    file.unlink()
                else:
                    file.write_text(whole[:cut])
                with pytest.raises(ConfigurationError, match=r"users_file: .*users\.toml: expected"):
                    await server.reload()
                assert server.keys.security.lets_in_anonymous == "never"
            path.write_text(SMALL + "[users.ada]\n")
            await server.reload()  # all of them stand in the configuration now
            path.write_text(SMALL)
            file.write_text(whole)
            await server.reload()
            assert "anonymous peers come in from now on" not in caplog.messages
            with editing(file) as content:
                content.users.clear()
            await server.reload()
            assert server.keys.security.lets_in_anonymous == "loopback"
            assert [one.levelname for one in caplog.records if "from now on" in one.message] == ["WARNING"]
            file.unlink()
            await server.reload()  # nobody was in it
        finally:
            await server.stop()

    asyncio.run(story())


def test_a_configuration_that_was_cut_off_before_its_users_changes_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        server, path = await serve(tmp_path, SMALL + "[users.ada]\n")
        try:
            for cut in ("", SMALL):
                path.write_text(cut)
                with pytest.raises(ConfigurationError, match="users: expected some, as the configuration had, found"):
                    await server.reload()
                assert server.keys.security.lets_in_anonymous == "never"
            path.write_text(SMALL + '[security]\nanonymous = "loopback"\n')
            await server.reload()  # it says who comes in
            path.write_text(SMALL)
            await server.reload()  # there were none
            assert server.keys.security.lets_in_anonymous == "loopback"
        finally:
            await server.stop()

    asyncio.run(story())


def test_a_reload_of_many_users_holds_up_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is told of them is told with a few in each turn of the loop; and they are put out so."""

    def users(role: str) -> str:
        return f"[roles.{role}]\n" + "".join(
            f'[users.u{n}]\nroles = ["{role}"]\n' for n in range(4 * RELOADED_PER_ROUND)
        )

    async def story() -> None:
        server, path = await serve(tmp_path, SMALL + users("one"))
        try:
            path.write_text(SMALL + users("two"))
            at_once, told = [], 0
            with caplog.at_level(logging.INFO, "acquit.broker"):
                reload = asyncio.create_task(server.reload())
                while not reload.done():
                    await asyncio.sleep(0)
                    at_once.append(len(caplog.records) - told)
                    told = len(caplog.records)
            assert len(await reload) >= 4 * RELOADED_PER_ROUND
            assert told > 4 * RELOADED_PER_ROUND
            assert max(at_once) <= RELOADED_PER_ROUND + 1
        finally:
            await server.stop()

    asyncio.run(story())


@pytest.mark.parametrize("which", ["configuration", "users_file", "tls.key_file"])
def test_what_cannot_be_read_again_is_refused(tmp_path: Path, which: str) -> None:
    """A pipe would be waited for, or be empty, which is valid: then anybody may come in."""
    config, pipe = tmp_path / "acquit.toml", tmp_path / "pipe"
    os.mkfifo(pipe)
    config.write_text(f'[security]\nusers_file = "{pipe if which == "users_file" else ""}"\n')
    if which == "tls.key_file":
        config.write_text(f'[tls]\ncertificate_file = "{config}"\nkey_file = "{pipe}"\n')
    with pytest.raises(ConfigurationError, match=f"{which}: {pipe}: expected a file, which can be read again"):
        load(
            pipe if which == "configuration" else config,
            BrokerOptions(),
            tmp_path,
            before=make_keys(BrokerOptions(), tmp_path),
        )
