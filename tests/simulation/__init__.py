"""Whole systems in virtual time: see `world`. `python -m tests.simulation` runs them for as long as somebody likes."""
