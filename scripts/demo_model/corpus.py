"""Collect the training text: English that ships with Python itself, and nothing else.

Sources, all inside the standard library's directory of the running interpreter: docstrings of
the pure Python modules (through `ast`), docstrings of the built-in and extension modules,
`pydoc_data.topics`, prose comments, IDLE's text files and the licence. The result is one JSON
line per *unit* (a module's introduction, a class with its methods, a function, a section of a
topic, a comment), in reading order, with the split it belongs to.

    python scripts/demo_model/corpus.py --out build/demo-model/corpus.jsonl
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import importlib
import inspect
import io
import json
import platform
import re
import sys
import sysconfig
import tokenize
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

from cleaning import clean, is_signature

VALIDATION_ONE_IN = 50
SKIPPED_PARTS = ("site-packages", "__pycache__", "lib-dynload", "bad", "badsyntax", "data")
PUBLIC_NAMES = {
    "posixpath": "os.path",
    "genericpath": "os.path",
    "posix": "os",
    "_collections_abc": "collections.abc",
}


@dataclass(frozen=True)
class Unit:
    """One piece of documentation: where it comes from, what it describes, its text."""

    document: str
    kind: str
    name: str
    signature: str
    text: str
    split: str = "train"


def stdlib_root() -> Path:
    """Return the directory of the running interpreter's standard library."""
    return Path(sysconfig.get_path("stdlib"))


def python_files(root: Path) -> list[tuple[str, Path]]:
    """Return (module name, path) of every source file: `os.path` first, tests last."""
    found: list[tuple[str, Path]] = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if any(part in SKIPPED_PARTS or part.startswith("config-") for part in parts):
            continue
        if parts[0] == "encodings" and re.match(r"(cp|iso|mac_|koi|kz|tis|ptc|hp)", parts[-1]):
            continue
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append((PUBLIC_NAMES.get(name, name), path))
    return sorted(found, key=_reading_order)


def _reading_order(item: tuple[str, Path]) -> tuple[bool, bool, str, bool]:
    """Order the modules so that deduplication keeps the text under its best known name."""
    name, path = item
    return name != "os.path", _is_test(name), name, path.stem != "posixpath"


def source_units(root: Path) -> Iterator[Unit]:
    """Yield the docstring units, then the comment units, of each source file."""
    for module, path in python_files(root):
        try:
            source = path.read_text(encoding="utf-8")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = ast.parse(source)
        except (SyntaxError, UnicodeDecodeError, ValueError):
            continue
        if not _is_test(module):
            yield from _docstring_units(module, tree)
        else:
            yield from _test_docstrings(module, tree)
        yield from _comment_units(module, source)


def _is_test(module: str) -> bool:
    """Say whether `module` belongs to a test package."""
    return bool(re.match(r"test\.|.*\b(tests|idle_test)\b", module))


def _docstring_units(module: str, tree: ast.Module) -> Iterator[Unit]:
    """Yield the introduction, classes and functions of one module."""
    yield _unit(module, "module", module, "", [ast.get_docstring(tree) or ""])
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield _class_unit(module, node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            doc = ast.get_docstring(node) or ""
            name = f"{module}.{node.name}"
            yield _unit(module, "function", name, f"{node.name}({_arguments(node)})", [doc])


def _class_unit(module: str, node: ast.ClassDef) -> Unit:
    """Return the unit of a class: its docstring, then each documented method's."""
    lines = clean(ast.get_docstring(node) or "")
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef):
            doc = clean(ast.get_docstring(item) or "")
            if doc:
                lines += [f"{node.name}.{item.name}({_arguments(item)})", *doc]
    return Unit(module, "class", f"{module}.{node.name}", f"class {node.name}", _join(lines))


def _arguments(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the parameter names of a function, without `self`."""
    names = [arg.arg for arg in [*node.args.posonlyargs, *node.args.args]]
    if node.args.vararg:
        names.append("*" + node.args.vararg.arg)
    names += [arg.arg for arg in node.args.kwonlyargs]
    if node.args.kwarg:
        names.append("**" + node.args.kwarg.arg)
    return ", ".join(name for name in names if name not in ("self", "cls"))


def _test_docstrings(module: str, tree: ast.Module) -> Iterator[Unit]:
    """Yield the prose docstrings of a test module (long ones only), as comments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            text = _join(clean(ast.get_docstring(node) or "", min_words=10))
            yield Unit(module, "comment", "", "", text)


def _comment_units(module: str, source: str) -> Iterator[Unit]:
    """Yield the prose comments of one source file."""
    for block in comment_blocks(source):
        kept = [p for p in clean(block, min_words=9) if re.search(r"[a-z)\"'`][.:!?]$", p)]
        yield Unit(module, "comment", "", "", _join(kept))


def comment_blocks(source: str) -> Iterator[str]:
    """Yield each run of comment lines of the same indentation, without the marks."""
    block: list[str] = []
    last = (-1, -1)
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type != tokenize.COMMENT or token.line.strip() != token.string:
                continue
            if token.start != (last[0] + 1, last[1]) and block:
                yield "\n".join(block)
                block = []
            last = token.start
            block.append(re.sub(r"^#+[:!]? ?", "", token.string))
    except (tokenize.TokenError, IndentationError):
        pass
    if block:
        yield "\n".join(block)


def extension_units(root: Path) -> Iterator[Unit]:
    """Yield units for the modules written in C, read from the imported modules."""
    extensions = {path.name.split(".")[0] for path in root.glob("lib-dynload/*.so")}
    names = set(sys.builtin_module_names) | extensions
    for name in sorted(n for n in names if not re.search(r"test|xx|^_tkinter|^_idle", n)):
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        yield _unit(name, "module", name, "", [module.__doc__ or ""])
        for key, value in sorted(vars(module).items()):
            if getattr(value, "__module__", name) in (name, name.lstrip("_"), None):
                yield from _object_units(name, key, value)


def _object_units(module: str, key: str, value: object) -> Iterator[Unit]:
    """Yield the unit of one function or class of an extension module, and of its methods."""
    public = PUBLIC_NAMES.get(module, module.lstrip("_"))
    name = key if module == "builtins" else f"{public}.{key}"
    if key.startswith("__") or not (inspect.isbuiltin(value) or inspect.isclass(value)):
        return
    kind = "class" if inspect.isclass(value) else "function"
    yield _unit(module, kind, name, key, [_c_doc(value)])
    if not inspect.isclass(value) or issubclass(value, BaseException):
        return
    for attribute, member in sorted(vars(value).items()):
        if not attribute.startswith("_"):
            full = f"{name}.{attribute}"
            yield _unit(module, "function", full, f"{key}.{attribute}", [_c_doc(member)])


def _c_doc(value: object) -> str:
    """Return the docstring of a C object without its leading signature lines."""
    doc = inspect.getdoc(value) or ""
    lines = doc.split("\n")
    while lines and re.match(r"\w[\w.]*\(.*\)( -> .*)?$", lines[0]):
        lines.pop(0)
    return re.sub(r"^\w[\w.]*\([^)\n]*\)( -> [^.\n]*?)?( --? |\n)", "", "\n".join(lines).strip())


def topic_units() -> Iterator[Unit]:
    """Yield the sections of `pydoc_data.topics`, longest topics first."""
    topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    for key in sorted(topics, key=lambda k: (-len(topics[k]), k)):
        for title, body in sections(topics[key]):
            text = _join(clean(body, signatures=True))
            yield Unit(f"topics.{key}", "topic", title, title, text)


def sections(text: str) -> Iterator[tuple[str, str]]:
    """Split a reStructuredText page at its underlined headings."""
    parts = re.split(r"(?m)^(\S[^\n]*)\n([*=\-~^])\2{3,}\n", text)
    if parts[0].strip():
        yield "", parts[0]
    for index in range(1, len(parts), 3):
        yield parts[index].strip().replace('"', "`"), parts[index + 2]


def text_units(root: Path) -> Iterator[Unit]:
    """Yield the plain text files: licence, IDLE's notes, the email package's design."""
    names = ["LICENSE.txt", "idlelib/HISTORY.txt", "idlelib/NEWS.txt", "idlelib/NEWS2x.txt"]
    names += ["idlelib/README.txt", "idlelib/extend.txt", "idlelib/TODO.txt"]
    for name in [*names, "email/architecture.rst"]:
        path = root / name
        if path.exists():
            raw = path.read_text(encoding="utf-8", errors="ignore")
            raw = re.sub(r"(?m)^(gh-|bpo-|Issue #?)\d+:? ?", "", raw)
            for title, body in sections(raw):
                yield _unit(name, "text", title, title, [body])
    help_page = root / "idlelib" / "help.html"
    if help_page.exists():
        yield _unit("idlelib/help.html", "text", "IDLE", "IDLE", [html_text(help_page)])


def html_text(path: Path) -> str:
    """Return the paragraphs and headings of an HTML page as plain text."""
    page = path.read_text(encoding="utf-8")
    found = re.findall(r"(?s)<(?:p|dd|h\d)>(.*?)</(?:p|dd|h\d)>", page)
    plain = [re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", item)).strip() for item in found]
    return "\n\n".join(plain).replace("&quot;", '"').replace("&amp;", "&")


def _unit(document: str, kind: str, name: str, signature: str, raw: list[str]) -> Unit:
    """Clean the raw texts and make a unit of them."""
    return Unit(document, kind, name, signature, _join([p for item in raw for p in clean(item)]))


def _join(paragraphs: Iterable[str]) -> str:
    """Join paragraphs with blank lines."""
    return "\n\n".join(paragraphs)


def deduplicate(units: Iterable[Unit]) -> Iterator[Unit]:
    """Drop repeated paragraphs, second introductions of a module and units left empty."""
    seen: Counter[str] = Counter()
    introduced: set[str] = set()
    for unit in units:
        kept = []
        for index, paragraph in enumerate(unit.text.split("\n\n")):
            key = re.sub(r"\W+", " ", paragraph).strip().lower()
            seen[key] += 1
            if key and (seen[key] <= _copies(unit, index, key) or is_signature(paragraph)):
                kept.append(paragraph)
        text = _join(_without_orphans(kept))
        again = unit.kind == "module" and unit.name in introduced
        if len(text) >= 12 and " " in text and not again:
            introduced.add(unit.name)
            yield replace(unit, text=text)


def _copies(unit: Unit, index: int, key: str) -> int:
    """Return how often a paragraph may occur: summaries of functions more often than others."""
    if unit.kind == "function" and index == 0:
        return 4
    return 1 if len(key) >= 60 or unit.kind == "comment" else 2


def _without_orphans(paragraphs: list[str]) -> list[str]:
    """Drop the signatures whose description was dropped."""
    pairs = pairwise([*paragraphs, ""])
    return [p for p, n in pairs if not is_signature(p) or (n and not is_signature(n))]


def assign_split(unit: Unit) -> Unit:
    """Hold out one unit in fifty, chosen by a hash of its name and text."""
    digest = hashlib.sha256(f"{unit.name}\n{unit.text}".encode()).digest()
    held_out = int.from_bytes(digest[:4], "big") % VALIDATION_ONE_IN == 0
    return replace(unit, split="validation" if held_out else "train")


def collect() -> list[Unit]:
    """Return every unit of the corpus, cleaned, deduplicated and split."""
    root = stdlib_root()
    readers: list[Callable[[], Iterator[Unit]]] = [
        topic_units,
        lambda: extension_units(root),
        lambda: source_units(root),
        lambda: text_units(root),
    ]
    units = (unit for reader in readers for unit in reader())
    return [assign_split(unit) for unit in deduplicate(units)]


def main() -> None:
    """Write the corpus as JSON lines and print its size."""
    parser = argparse.ArgumentParser(description="Collect the training text.")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    units = collect()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    with args.out.open("w", encoding="utf-8") as file:
        for unit in units:
            file.write(json.dumps(asdict(unit)) + "\n")
    sizes: Counter[str] = Counter()
    for unit in units:
        sizes[f"{unit.split}/{unit.kind}"] += len(unit.text)
    print(
        f"Python {platform.python_version()}: {len(units)} units, {sum(sizes.values())} characters"
    )
    for key, value in sorted(sizes.items()):
        print(f"  {key}: {value}")


if __name__ == "__main__":
    main()
