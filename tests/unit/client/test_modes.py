from __future__ import annotations

import pytest

from acquit.client.modes import MODES, AckMode, AckScope, CreditReturn, find_mode
from acquit.errors import ConfigurationError
from acquit.protocol.definitions import RcvSettleMode, SndSettleMode


@pytest.mark.parametrize(
    ("wanted", "mode"),
    [
        (AckMode.AUTO, AckMode.AUTO),
        (AckMode.TRANSACTED, AckMode.TRANSACTED),
        (0, AckMode.TRANSACTED),
        ("transacted", AckMode.TRANSACTED),
        (1, AckMode.AUTO),
        (2, AckMode.CLIENT),
        (3, AckMode.DUPS_OK),
        ("dups-ok", AckMode.DUPS_OK),
        (258, AckMode.PRE_ACK),
        (101, AckMode.INDIVIDUAL),
        (100, AckMode.NO_ACK),
        (257, AckMode.NO_ACK),
        ("client", AckMode.CLIENT),
        ("INDIVIDUAL", AckMode.INDIVIDUAL),
        (" no-ack ", AckMode.NO_ACK),
    ],
)
def test_a_mode_is_found_by_name_and_by_the_values_of_other_clients(wanted: AckMode | str | int, mode: AckMode) -> None:
    assert find_mode(wanted).name is mode


@pytest.mark.parametrize("wanted", ["automatic", 4, 99, ""])
def test_a_mode_that_nobody_has_is_refused_with_those_there_are(wanted: str | int) -> None:
    with pytest.raises(
        ConfigurationError, match=f"no acknowledgement mode {wanted!r}; expected one of TRANSACTED, AUTO"
    ):
        find_mode(wanted)


def test_the_table_is_the_one_of_the_documentation() -> None:
    """Credit, scope of acknowledge, and what the links ask for: docs/client.md has the same rows in words."""
    assert {
        mode.name.name: (mode.credit, mode.scope, mode.snd_settle_mode, mode.rcv_settle_mode) for mode in MODES.values()
    } == {
        "TRANSACTED": (CreditReturn.ON_HANDOVER, AckScope.NOTHING, SndSettleMode.UNSETTLED, RcvSettleMode.FIRST),
        "AUTO": (CreditReturn.ON_HANDOVER, AckScope.NOTHING, SndSettleMode.UNSETTLED, RcvSettleMode.FIRST),
        "CLIENT": (CreditReturn.ON_ACKNOWLEDGEMENT, AckScope.SESSION, SndSettleMode.UNSETTLED, RcvSettleMode.SECOND),
        "INDIVIDUAL": (
            CreditReturn.ON_ACKNOWLEDGEMENT,
            AckScope.MESSAGE,
            SndSettleMode.UNSETTLED,
            RcvSettleMode.SECOND,
        ),
        "DUPS_OK": (CreditReturn.ON_HANDOVER, AckScope.NOTHING, SndSettleMode.UNSETTLED, RcvSettleMode.FIRST),
        "NO_ACK": (CreditReturn.ON_HANDOVER, AckScope.NOTHING, SndSettleMode.SETTLED, RcvSettleMode.FIRST),
        "PRE_ACK": (CreditReturn.ON_HANDOVER, AckScope.NOTHING, SndSettleMode.UNSETTLED, RcvSettleMode.FIRST),
    }


def test_only_a_mode_without_acknowledgement_is_unreliable() -> None:
    assert [mode.name for mode in MODES.values() if not mode.reliable] == [AckMode.NO_ACK]


def test_every_mode_has_its_row() -> None:
    assert set(MODES) == set(AckMode)
