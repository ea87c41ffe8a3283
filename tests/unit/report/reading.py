"""A page read back the way a browser does, as a tree of elements."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br", "img", "link"}


@dataclass(repr=False)
class Node:
    """An element, what it holds, and its text."""

    tag: str
    attributes: dict[str, str | None]
    content: list[Node | str] = field(default_factory=list)

    @property
    def children(self) -> list[Node]:
        """The elements right below."""
        return [part for part in self.content if isinstance(part, Node)]

    def all(self, tag: str | None = None, **attributes: str) -> list[Node]:
        """All elements below with this tag and these attributes; `class_` is one of the classes."""
        found = []
        for child in self.children:
            wanted = attributes.items()
            if tag in (None, child.tag) and all(child.has(name, value) for name, value in wanted):
                found.append(child)
            found += child.all(tag, **attributes)
        return found

    def one(self, tag: str | None = None, **attributes: str) -> Node:
        """The only such element."""
        (found,) = self.all(tag, **attributes)
        return found

    def has(self, name: str, value: str) -> bool:
        own = self.attributes.get(name.rstrip("_").replace("_", "-"))
        return own is not None and (value in own.split() if name == "class_" else value == own)

    @property
    def text(self) -> str:
        """All text below, without needless space."""
        parts = (part if isinstance(part, str) else part.text for part in self.content)
        return " ".join(" ".join(parts).split())


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Node("document", {})]

    def handle_starttag(self, tag, attributes):
        node = Node(tag, dict(attributes))
        self.open[-1].content.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_startendtag(self, tag, attributes):
        self.open[-1].content.append(Node(tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop().tag == tag

    def handle_data(self, data):
        self.open[-1].content.append(data)


def read(page: str) -> Node:
    """Parse a page; every element has to be closed where it belongs."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert len(reader.open) == 1
    return reader.open[0]
