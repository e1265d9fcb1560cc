"""The broker: queues, routing, redelivery, on top of the protocol engine, the journal and the transport.

`core` decides and never acts; `server` acts and never decides. Start one with `server.Server`, or in a program of your
own with `acquit.Broker`.
"""

from __future__ import annotations
