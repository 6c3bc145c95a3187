"""What a drawing holds: its elements by tag and class, and its words."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

SVG = "{http://www.w3.org/2000/svg}"


def nodes(drawing: str, tag: str, kind: str = "") -> list[ElementTree.Element]:
    found = ElementTree.fromstring(drawing).iter(SVG + tag)
    return [node for node in found if kind in node.get("class", "").split() or not kind]


def words(drawing: str) -> list[str]:
    return ["".join(node.itertext()) for node in nodes(drawing, "text")]
