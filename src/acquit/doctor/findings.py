"""Findings: one line each, with how bad it is and what to change."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """The weight of a finding."""

    OK = "ok"
    WARNING = "warning"
    """Works, and may surprise somebody later."""
    PROBLEM = "problem"
    """Keeps a broker from starting, or loses what it should keep."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of one check."""

    severity: Severity
    subject: str
    found: str
    advice: str = ""
    """The change that would help; empty where there is nothing to change."""


def ok(subject: str, found: str) -> Diagnosis:
    """Return a finding that is as it should be."""
    return Diagnosis(Severity.OK, subject, found)


def warning(subject: str, found: str, advice: str) -> Diagnosis:
    """Return a finding that may surprise somebody later."""
    return Diagnosis(Severity.WARNING, subject, found, advice)


def problem(subject: str, found: str, advice: str) -> Diagnosis:
    """Return a finding that keeps a broker from starting, or that loses what it should keep."""
    return Diagnosis(Severity.PROBLEM, subject, found, advice)


_UNITS: Final = ("bytes", "KiB", "MiB", "GiB", "TiB")


def size_text(size_bytes: float) -> str:
    """Return a number of bytes as people read it: ``1.5 GiB``."""
    for unit in _UNITS:
        if size_bytes < 1024 or unit == _UNITS[-1]:
            break
        size_bytes /= 1024
    return f"{size_bytes:,.0f} {unit}" if unit == "bytes" else f"{size_bytes:,.1f} {unit}"
