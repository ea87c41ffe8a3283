"""HTML built from elements: text is escaped unless it is already markup."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

_VOID = frozenset({"br", "img", "link", "meta"})


class Html(str):
    """Markup. Every other string is text, and is escaped when it becomes part of an element."""


def element(tag: str, *content: str | None, **attributes: str | int | bool | None) -> Html:
    """Return an element.

    Args:
        tag: its name.
        content: text, or markup; `None` is left out.
        attributes: `class_` is `class`, `aria_label` is `aria-label`; `True` stands alone, `None`
            and `False` are left out.
    """
    opening = f"<{tag}{''.join(map(_attribute, attributes, attributes.values()))}>"
    if tag in _VOID:
        return Html(opening)
    return Html(f"{opening}{joined(content)}</{tag}>")


def joined(parts: Iterable[str | None], between: str = "") -> Html:
    """Return text and markup as one piece of markup; `None` is left out."""
    return Html(escaped(between).join(escaped(part) for part in parts if part is not None))


def escaped(text: str) -> Html:
    """Return text as markup that shows it; markup as it is."""
    return text if isinstance(text, Html) else Html(html.escape(text))


class Anchors:
    """Names for places on a page, each given once."""

    def __init__(self) -> None:
        self._given: dict[str, int] = {}

    def new(self, *words: str) -> str:
        """Return a name made of these words that no other place has."""
        name = re.sub(r"[^A-Za-z0-9]+", "-", "-".join(words)).strip("-").lower() or "part"
        number = self._given.get(name, 0) + 1
        self._given[name] = number
        return name if number == 1 else self.new(name, str(number))


def _attribute(name: str, value: str | int | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'
