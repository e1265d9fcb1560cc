"""The `acquit` command."""
