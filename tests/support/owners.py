"""Root, without being it: notes what changes hands."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


class Owners:
    """The calls by which root gives files away, where they are made of this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.uid = 0
        self.refusing = False
        self.handed_over: list[str] = []
        """Names of what was given to the owner of its folder, or of the file it is to replace."""
        self.given: dict[str, tuple[int, int]] = {}
        """Owner and group that each was given last."""
        monkeypatch.setattr(os, "geteuid", lambda: self.uid)
        monkeypatch.setattr(os, "fchown", self._give)

    def _give(self, descriptor: int, uid: int, gid: int) -> None:
        if self.refusing:
            raise PermissionError(1, "Operation not permitted")
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        self.handed_over.append(name)
        self.given[name] = uid, gid
