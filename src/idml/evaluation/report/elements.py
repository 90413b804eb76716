"""HTML that is safe by construction: text is escaped on its way into an element, whoever wrote it."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Sequence

VOID = ("img", "meta")  # elements without an end
UNREADABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # control characters, halves of characters
NOTHING = "–"


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def readable(text: object) -> str:
    """Any text, without what no page and no picture can hold.

    >>> readable("wren\\x00")
    'wren\ufffd'
    """
    return UNREADABLE.sub("\ufffd", str(text))


def element(tag: str, *content: object, **attributes: object) -> Html:
    """An element; what it holds is escaped unless it is Html, and an attribute that is None is left out.

    A name that is Python's own ends in an underscore, and others become dashes.

    >>> print(element("p", "wren < gull ", element("b", "!"), class_="note"))
    <p class="note">wren &lt; gull <b>!</b></p>
    """
    given = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(readable(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    inside = "".join(part if isinstance(part, Html) else html.escape(readable(part)) for part in content)
    return Html(f"<{tag}{given}>" if tag in VOID else f"<{tag}{given}>{inside}</{tag}>")


def section(title: str, *content: Html, id_: str) -> Html:
    return element("section", element("h2", title, id=f"{id_}-title"), *content, id=id_, aria_labelledby=f"{id_}-title")


def note(*words: object) -> Html:
    return element("p", *words, class_="note")


def table(caption: object, head: Sequence[object], rows: Iterable[Sequence[object]], *, class_: str = "") -> Html:
    """A table whose first column names the rows."""
    lines = [
        element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in cells))
        for first, *cells in rows
    ]
    names = element("tr", *(element("th", name, scope="col") for name in head))
    inside = element(
        "table", element("caption", caption), element("thead", names), element("tbody", *lines), class_=class_
    )
    return element("div", inside, class_="wide")


def figure(picture: str, *, alt: str, caption: object) -> Html:
    return element("figure", element("img", src=picture, alt=alt), element("figcaption", caption), class_="plot")


def percent(share: float, *, decimals: int = 2) -> str:
    """
    >>> percent(0.71234), percent(float("nan"))
    ('71.23\u202f%', '–')
    """
    return f"{100 * share:.{decimals}f}\u202f%" if math.isfinite(share) else NOTHING


def number(value: float, *, digits: int = 4) -> str:
    """So many digits that count.

    >>> number(0.5), number(-1234.56), number(float("nan"))
    ('0.5000', '−1235', '–')
    """
    return f"{value:#.{digits}g}".rstrip(".").replace("-", "−") if math.isfinite(value) else NOTHING
