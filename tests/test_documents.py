"""Links in documents lead somewhere: to a file that is there, and to a heading that it has."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
LINK = re.compile(r"\]\(([^)\s]+)\)")
ELSEWHERE = ("http:", "https:", "mailto:")


def anchors(document: Path) -> set[str]:
    """Of its headings, as web pages make them: in small letters, without punctuation, spaces as hyphens."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    text = re.sub(r"```.*?```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in LINK.findall(text):
        if link.startswith(ELSEWHERE):
            continue
        place, _, anchor = link.partition("#")
        target = (document.parent / place).resolve() if place else document
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors(target), link


def test_pictures_of_documents_are_shown_by_one():
    shown = {
        (document.parent / link).resolve() for document in DOCUMENTS for link in LINK.findall(document.read_text())
    }
    assert [picture.name for picture in (ROOT / "docs").glob("*.png") if picture not in shown] == []
