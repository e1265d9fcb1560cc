"""The API: `Connection`, and what is made by it; `Message`; the exceptions.

    from acquit.compat.qpid.messaging import *

What it is and where it differs from what it was: docs/qpid-messaging.md.
"""

from __future__ import annotations

from acquit.compat.qpid.datatypes import uuid4
from acquit.compat.qpid.messaging import constants, endpoints, exceptions, message
from acquit.compat.qpid.messaging.constants import *  # noqa: F403 -- the names are listed there
from acquit.compat.qpid.messaging.endpoints import *  # noqa: F403
from acquit.compat.qpid.messaging.exceptions import *  # noqa: F403
from acquit.compat.qpid.messaging.message import *  # noqa: F403

__all__ = [*constants.__all__, *endpoints.__all__, *exceptions.__all__, *message.__all__, "uuid4"]  # noqa: PLE0604
