"""Hooks of MkDocs (mkdocs.yml): the navigation, and pages of the site that are not in docs/.

The navigation is the list of links in docs/index.md, section by section. Pages in other folders
(GLOSSARY.md, scenarios/README.md, …) are part of the site if a page of docs/ links to them;
other linked files (examples, the dashboard) are copied. Links are rewritten to match, so the same
text works on the site and in the repository.
"""

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
OUTSIDE = "project/"
"""The site's folder for files that are not in docs/."""
_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


def on_config(config: Any) -> None:
    """Set the navigation: the sections of the index, and the decisions as the last one."""
    title, *parts = _SECTION.split((DOCS / "index.md").read_text())
    del title
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    config.nav = ["index.md"]
    for name, text in sections.items():
        pages = [_place(path) for path in _linked(DOCS / "index.md", text) if path.suffix == ".md"]
        config.nav.append({name: list(dict.fromkeys(pages))})
    decisions = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.glob("adr/[0-9]*.md"))
    config.nav.append({"Decisions": ["adr/README.md", *decisions]})


def on_files(files: Files, config: Any) -> None:
    """Add the files outside docs/ to which pages link, and those to which these pages link."""
    pages = list(DOCS.rglob("*.md"))
    seen = set(pages)
    while pages:
        page = pages.pop()
        for path in _linked(page, page.read_text()):
            if path in seen or DOCS in path.parents:
                continue
            seen.add(path)
            files.append(File.generated(config, _place(path), abs_src_path=str(path)))
            if path.suffix == ".md":
                pages.append(path)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite links to files of the repository into links to their places on the site."""
    source = Path(page.file.abs_src_path)
    folder = os.path.dirname(page.file.src_uri)

    def rewritten(match: re.Match[str]) -> str:
        path = (source.parent / match[2]).resolve()
        if not path.is_file():
            return match[0]
        return f"{match[1]}{os.path.relpath(_place(path), folder or '.')}{match[3]}"

    return _LINK.sub(rewritten, markdown)


def _linked(page: Path, text: str) -> list[Path]:
    targets = (match[2] for match in _LINK.finditer(_FENCE.sub("", text)))
    paths = ((page.parent / target).resolve() for target in targets if "://" not in target)
    return [path for path in paths if path.is_file()]


def _place(path: Path) -> str:
    """Return the path of a file on the site."""
    if DOCS in path.parents:
        return path.relative_to(DOCS).as_posix()
    return OUTSIDE + path.relative_to(ROOT).as_posix()
