"""Python imports this by itself, at its start, where this folder is on PYTHONPATH; so every process of a Spark can be
killed at a named point while it runs the package as users have it. Nothing happens unless somebody arms a point."""

from tests.support import crashing

crashing.install()
