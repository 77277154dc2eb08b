"""Every relative link and anchor in the project's Markdown files leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("benchmarks", "docs", "src")
PAGES = sorted(
    [*ROOT.glob("*.md"), *(page for folder in FOLDERS for page in (ROOT / folder).rglob("*.md"))]
)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)
CODE_BLOCK = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE_SPAN = re.compile(r"`[^`\n]*`")


def anchors_of(page: Path) -> set[str]:
    """The anchors that a hosting site derives from a page's headings."""
    text = CODE_BLOCK.sub("", page.read_text("utf-8"))
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text))
    return {heading.replace(" ", "-") for heading in plain}


def broken_links(page: Path) -> list[str]:
    """The link targets of a page that do not exist."""
    text = CODE_SPAN.sub("", CODE_BLOCK.sub("", page.read_text("utf-8")))
    broken: list[str] = []
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        known = anchors_of(file) if file.suffix == ".md" and file.is_file() else {anchor}
        if not file.exists() or (anchor and anchor not in known):
            broken.append(target)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A title\n[up](#a-title) [no](#none) [gone](gone.md) `[code](x.md)`\n")
    assert broken_links(page) == ["#none", "gone.md"]
