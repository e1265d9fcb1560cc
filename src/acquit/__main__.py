"""``python -m acquit``: the `acquit` command of this interpreter, wherever its scripts are installed."""

from __future__ import annotations

from acquit.cli import main

if __name__ == "__main__":
    main()
