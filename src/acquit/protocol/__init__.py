"""AMQP 1.0 as functions of bytes, values and a given `now`: no sockets, no clock, nothing but the standard library."""
