"""The committed pages of the console: built from web/, small, free of what their policy blocks."""

import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"
STATIC = ROOT / "src/tidelog/apps/console/static"
DRAWING = ROOT / "src/tidelog/apps/demo/report/drawing"
BYTES_MAX = 300_000
DRAWING_BYTES_MAX = 80_000


def hash_of_sources() -> str:
    """Hash path and content of every file below web/, as web/vite.config.ts does."""
    named = {
        path.relative_to(WEB).as_posix(): path
        for path in WEB.rglob("*")
        if path.is_file() and "node_modules" not in path.relative_to(WEB).parts
    }
    found = hashlib.sha256()
    for name in sorted(named):
        content = named[name].read_bytes()
        found.update(f"{name}\0{len(content)}\0".encode())
        found.update(content)
    return found.hexdigest()


def test_built_pages_match_their_sources() -> None:
    built = (STATIC / "sources.sha256").read_text().strip()
    assert built == hash_of_sources(), "web/ changed: run make console, and commit both"


def test_the_drawing_of_the_demos_report_can_be_part_of_a_page() -> None:
    for path in DRAWING.iterdir():
        text = path.read_text()
        assert len(text) < DRAWING_BYTES_MAX, path
        assert "</" + path.suffix.replace(".js", "script").replace(".css", "style") not in text
        assert "url(" not in text.replace("url(#", ""), path


def test_every_built_file_is_used() -> None:
    """A merge may leave files of an older build, whose names have another hash."""
    files = [path for path in STATIC.rglob("*") if path.suffix in {".html", ".js", ".css"}]
    texts = {path: path.read_text() for path in files}
    for path in (STATIC / "assets").iterdir():
        assert any(path.name in text for other, text in texts.items() if other != path), path.name


def test_built_pages_are_small() -> None:
    assert sum(path.stat().st_size for path in STATIC.rglob("*") if path.is_file()) < BYTES_MAX


def test_page_has_nothing_that_the_content_security_policy_blocks() -> None:
    page = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)", page), "inline script"
    assert not re.search(r"<style|\sstyle=|\son\w+=|https?://|data:", page)
    for path in (STATIC / "assets").iterdir():
        assert "url(data:" not in path.read_text(), path.name


def test_sources_insert_no_html() -> None:
    for path in (WEB / "src").rglob("*.svelte"):
        text = path.read_text()
        assert "{@html" not in text, path
        assert not re.search(r"\sstyle=[\"']", text), f"{path}: use style:name={{value}}"
