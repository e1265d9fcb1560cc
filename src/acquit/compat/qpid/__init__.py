"""The API of ``qpid.messaging``, Apache Qpid's old Python client, on our client: AMQP 1.0, current Python.

A program is moved by one line, `install` before its ``import qpid.messaging``, or by none::

    python -m acquit.compat.qpid program.py arguments

or it imports `acquit.compat.qpid.messaging` itself. What it means in AMQP 1.0, and what differs, is on the page
docs/qpid-messaging.md.
"""

from __future__ import annotations

# First, so that any module here can be the first that is imported: they and the API's modules need each other.
from acquit.compat.qpid import messaging
from acquit.compat.qpid.installing import install

__all__ = ["install", "messaging"]
