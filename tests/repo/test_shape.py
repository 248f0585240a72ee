"""The form of the repository: sizes, duplicates, unused modules."""

import ast
import hashlib
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
FILE_LINES_MAX = 900
FUNCTION_LINES_MAX = 100
FOLDER_FILES_MAX = 28
"""Guides, not targets: split by concept; raise a limit that hinders a sensible merge (ADR 9)."""
LAZY_IMPORT = re.compile(r"^(tidelog(?:\.\w+)+):\w+$")
"""An entry in the table of commands: "module:attribute", imported on first use."""
LAZY_HANDLER = re.compile(r"^((?:handlers|guards)\.\w+):\w+$")
"""The same in the API table; the module is in `tidelog.core.api`."""
VAGUE_NAMES = {"utils", "util", "helpers", "common", "misc", "manager", "base", "stuff"}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text())
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_file_size_is_limited(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= FILE_LINES_MAX
    assert path.stem not in VAGUE_NAMES
    too_long = {
        f.name: (f.end_lineno or f.lineno) - f.lineno + 1
        for f in functions(path)
        if (f.end_lineno or f.lineno) - f.lineno + 1 > FUNCTION_LINES_MAX
    }
    assert not too_long


def test_folder_size_is_limited() -> None:
    counts: dict[str, int] = defaultdict(int)
    for path in SOURCES:
        if path.name != "__init__.py":
            counts[relative(path.parent)] += 1
    assert not {folder: n for folder, n in counts.items() if n > FOLDER_FILES_MAX}


def test_no_function_body_is_duplicated() -> None:
    seen: dict[str, str] = {}
    twice = []
    for path in SOURCES:
        for function in functions(path):
            body = ast.dump(ast.Module(body=function.body, type_ignores=[]))
            if len(ast.unparse(function)) < 200:
                continue
            key = hashlib.sha256(body.encode()).hexdigest()
            place = f"{relative(path)}:{function.name}"
            if key in seen:
                twice.append((seen[key], place))
            seen[key] = place
    assert not twice


def test_every_module_is_imported_by_something() -> None:
    imported: set[str] = set()
    for path in SOURCES + TESTS:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module)
                imported.update(f"{node.module}.{alias.name}" for alias in node.names)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                imported.update(LAZY_IMPORT.findall(node.value))
                handlers = LAZY_HANDLER.findall(node.value)
                imported.update(f"tidelog.core.api.{handler}" for handler in handlers)
    entry_points = {"tidelog.__main__"}
    modules = {
        ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        for path in SOURCES
        if path.name != "__init__.py"
    }
    assert not modules - imported - entry_points
