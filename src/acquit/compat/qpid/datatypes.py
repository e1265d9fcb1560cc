"""Values that programs of the API import from here."""

from __future__ import annotations

from uuid import UUID, uuid4

__all__ = ["UUID", "uuid4"]
