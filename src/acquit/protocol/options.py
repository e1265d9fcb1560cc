"""Options of one connection: what we tell the peer, and the bounds we hold it and ourselves to.

Every buffer, count and wait of the engine is bounded by a field here. The defaults suit a broker on an ordinary
machine; a peer that goes past a bound hears the condition named beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from acquit.errors import ConfigurationError

MAX_FRAME_SIZE_MIN = 512
"""Every peer must accept frames of this size, and SASL frames are never larger (2.8, MIN-MAX-FRAME-SIZE)."""

UINT_MAX = 0xFFFF_FFFF


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectionOptions:
    """Options of one connection. Raises ConfigurationError, naming the field, for a value that AMQP cannot carry."""

    container_id: str
    """Name of this end (2.7.1). With a link's name it identifies the link across connections, so keep it stable."""

    hostname: str | None = None
    """The host we mean to reach, for peers that serve several names. Clients only."""

    max_frame_size: int = 65_536
    """Largest frame we accept, in bytes, 512 at least. A larger one: amqp:connection:framing-error."""

    channel_max: int = 255
    """Highest channel number; one more than this many sessions. A higher channel: amqp:connection:framing-error."""

    handle_max: int = 4_095
    """Highest link handle of a session. A higher handle: amqp:connection:framing-error, as 2.7.2 asks."""

    idle_timeout_ms: int = 30_000
    """The idle-time-out we advertise: half of our own limit (2.4.5), so that a peer that is just in time never trips
    it. A peer silent for twice as long: amqp:resource-limit-exceeded. 0: we never time the peer out."""

    idle_timeout_ms_min: int = 100
    """The shortest idle-time-out we agree to keep for a peer, so that nobody can make us heartbeat without pause."""

    handshake_timeout_ms: int = 10_000
    """Milliseconds from start to the peer's open, SASL and its verification included. Then the connection drops."""

    close_timeout_ms: int = 5_000
    """Milliseconds to wait for the peer's close after ours, before the socket may be closed regardless (2.4.3)."""

    offered_capabilities: tuple[str, ...] = ()
    """Extensions we support, in open."""

    desired_capabilities: tuple[str, ...] = ()
    """Extensions we would use if the peer has them, in open."""

    properties: Mapping[str, object] | None = None
    """Connection properties, in open: product, version, platform."""

    incoming_window_frames: int = 2_048
    """Transfer frames of one session that the peer may send before it must hear from us. It is refreshed when half is
    used. More: amqp:session:window-violation."""

    outgoing_window_frames: int = 65_535
    """Our own outgoing window, as we announce it. What limits us is the peer's incoming window."""

    max_message_size: int = 64 * 1024 * 1024
    """Largest message, in bytes, that a receiving link takes unless it says otherwise; 0 for no limit. A larger one:
    amqp:link:message-size-exceeded, as soon as it is past the limit."""

    assembly_bytes_max: int = 256 * 1024 * 1024
    """Bytes of deliveries that have begun and not ended, over all links of the connection. Past it, the link that asked
    for more is detached with amqp:resource-limit-exceeded."""

    unsettled_max: int = 65_536
    """Deliveries of one session that we sent and nobody settled. At this number its senders pause, whatever their
    credit: a peer that grants credit and never settles must not fill our memory."""

    dispositions_per_delivery_max: int = 16
    """Times, on average, that the peer may speak of a delivery in dispositions of many. A frame that names all that is
    unsettled costs it 30 bytes; past this the session ends with amqp:resource-limit-exceeded."""

    output_chunk_bytes: int = 256 * 1024
    """Bytes, roughly, of deliveries larger than a frame that each `Connection.data_to_send` adds, in turns among the
    links, so that one large delivery neither fills memory nor keeps the others waiting."""

    sasl_frame_size_max: int = 4_096
    """Largest SASL frame we accept, in bytes. The specification says 512 (5.3.1); tokens as passwords are longer."""

    pipelined_bytes_max: int = 65_536
    """Bytes that a peer may send ahead while its SASL response is being verified. More: it is disconnected."""

    turn_cost_max: int = 0
    """Cost that one call of `Connection.receive_data` may reach, in the units of `costs`; the rest waits for the next
    call (`Connection.input_waits`). For whoever serves many peers with one thread. 0: everything is taken at once."""

    initial_serial: int = 0
    """First transfer-id and delivery-id of our sessions. Arbitrary (2.5.6); near 2^32 they wrap around soon, which is
    good for tests."""

    def __post_init__(self) -> None:
        for name, low, high in (
            ("max_frame_size", MAX_FRAME_SIZE_MIN, UINT_MAX),
            ("channel_max", 0, 0xFFFF),
            ("handle_max", 0, UINT_MAX),
            ("idle_timeout_ms", 0, UINT_MAX),
            ("idle_timeout_ms_min", 1, UINT_MAX),
            ("handshake_timeout_ms", 1, UINT_MAX),
            ("close_timeout_ms", 1, UINT_MAX),
            ("incoming_window_frames", 2, 0x7FFF_FFFF),
            ("outgoing_window_frames", 1, 0x7FFF_FFFF),
            ("max_message_size", 0, 0xFFFF_FFFF_FFFF_FFFF),
            ("assembly_bytes_max", 0, 0xFFFF_FFFF_FFFF_FFFF),
            ("unsettled_max", 1, 0x7FFF_FFFF),
            ("dispositions_per_delivery_max", 4, 0xFFFF),
            ("output_chunk_bytes", 1, UINT_MAX),
            ("sasl_frame_size_max", MAX_FRAME_SIZE_MIN, UINT_MAX),
            ("pipelined_bytes_max", 0, UINT_MAX),
            ("turn_cost_max", 0, UINT_MAX),
            ("initial_serial", 0, UINT_MAX),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or not low <= value <= high:
                raise ConfigurationError(f"{name} must be a whole number from {low} to {high}, got {value!r}")
        if not self.container_id:
            raise ConfigurationError("container_id must not be empty")


__all__ = ["MAX_FRAME_SIZE_MIN", "ConnectionOptions"]
