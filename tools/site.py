"""Hooks of mkdocs: what the site does with the pages of docs/ before it renders them.

The pages are written to be read in the tree as well, where they lead to files beside docs/. The site has only some of
these: ARCHITECTURE.md and its like become pages, and of a link to another file its text is left, with the path behind
it. Which pages there are, under which heading, is read from the tables of docs/index.md, so that it is written once.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).resolve().parent.parent
BESIDE: Final = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Files of the root that are pages of the site."""
_LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?:|#|mailto:)([^()\s#]+)(#[^()\s]*)?\)")
_HEADING: Final = re.compile(r"^\| ([^|]+?) \| \|$")
_ROW: Final = re.compile(r"^\| (.*?) \| (.*) \|$")
_PAGE: Final = re.compile(r"\[([^\]]*)\]\(([\w-]+\.md)\)")
_INFO: Final = re.compile(r"^(```\w+) (?:no-run|staged)$", re.MULTILINE)


def navigation(index: str) -> list[dict[str, Any]]:
    """Return the tables of the first page as mkdocs wants its navigation: heading, then pages with their titles. A
    page that is named in two rows stands where it is named first."""
    found: list[dict[str, Any]] = [{"acquit": "index.md"}]
    seen: set[str] = set()
    for line in index.splitlines():
        if heading := _HEADING.match(line):
            found.append({heading[1]: []})
        elif _ROW.match(line) and len(found) > 1:
            (pages,) = found[-1].values()
            for title, page in _PAGE.findall(line):
                if page not in seen:
                    seen.add(page)
                    pages.append({title.replace("`", ""): page})
    found.append({"The project": [{Path(name).stem.capitalize(): name} for name in BESIDE]})
    return [entry for entry in found if all(entry.values())]


def rewritten(text: str, source: str) -> str:
    """Return a page with its links as the site needs them; `source` is its path from the root of the tree."""

    def link(match: re.Match[str]) -> str:
        label, target, anchor = match.groups()
        path = (ROOT / source).parent.joinpath(target).resolve().relative_to(ROOT).as_posix()
        if path in BESIDE:
            return f"[{label}]({path}{anchor or ''})"
        if path.startswith("docs/") and (ROOT / path).is_file():
            return f"[{label}]({path.removeprefix('docs/')}{anchor or ''})"
        return label if path.rstrip("/") in label else f"{label} (`{path}`)"

    return _INFO.sub(r"\1", _LINK.sub(link, text))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Take the navigation from the first page."""
    config.nav = navigation((ROOT / "docs/index.md").read_text())
    return config


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add what lies beside docs/."""
    for name in BESIDE:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Lead the links of one page to what the site has."""
    source = page.file.src_uri
    return rewritten(markdown, source if source in BESIDE else f"docs/{source}")
