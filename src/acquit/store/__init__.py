"""An append-only journal of checksummed records. It knows bytes, order and positions, not AMQP."""
