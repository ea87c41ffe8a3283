"""A page read back as a tree of elements."""

from lxml import etree, html


class Node(html.HtmlElement):
    @property
    def attributes(self):
        return self.attrib

    @property
    def children(self):
        """The elements right below."""
        return [*self]

    def all(self, tag="*", **attributes):
        """All elements below with this tag and these attributes; `class_` is one of the classes."""
        wanted = [
            f"[contains(concat(' ', @class, ' '), ' {value} ')]"
            if name == "class_"
            else f"[@{name} = '{value}']"
            for name, value in attributes.items()
        ]
        return self.xpath(f".//{tag}{''.join(wanted)}")

    def one(self, tag="*", **attributes):
        """The only such element."""
        (found,) = self.all(tag, **attributes)
        return found

    @property
    def text(self):
        """All text below, without needless space."""
        return " ".join(" ".join(self.xpath(".//text()")).split())


def read(page):
    """Parse a page."""
    parser = html.HTMLParser()
    parser.set_element_class_lookup(etree.ElementDefaultClassLookup(element=Node))
    return html.document_fromstring(page, parser=parser)
