"""YAML 1.2 text into plain data that remembers on which line every key was written.

Only what a case needs: mappings, lists, text, numbers, booleans, anchors and merge keys. Dates stay text. Everything
that can be told from the text alone is reported: keys given twice, tabs, tags, several documents.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainplan_models.base import InputError, Problem
from trainplan_models.places import Path, dotted
from trainplan_models.quantity import shown

if TYPE_CHECKING:
    from ruamel.yaml import YAML

Node = Any
"""A ruamel.yaml node: scalar, sequence or mapping."""

MAX_NODES = 100_000
"""Values a file may have, each use of an anchor counted."""
MAX_DEPTH = 100
"""Brackets that may be open at once."""
TEXT_KEYS = frozenset({"name", "labels", "after"})
"""What stands under these keys is text as written: ``release: 1.10`` is not the number 1.1."""

_BRACKET = re.compile(r"[\[\]{}]")
_TAG = "tag:yaml.org,2002:"
_SYNTAX_FIXES = (
    ("\\t", "Indent with spaces: YAML does not allow tabs."),
    ("a single document", "Keep one document in the file: remove the `---` in the middle and what follows."),
    ("could not find expected ':'", "Write every key as `key: value`, with a space after the colon."),
    (
        "mapping values are not allowed",
        "Indent keys of one level alike, and quote text that has a colon in it.",
    ),
    ("expected ',' or", "Close every [ with ] and every { with }, and put commas between."),
    ("expected <block end>", "Indent keys of one level alike, and begin every list item with `- `."),
    ("cannot start any token", "Put text that begins with a special character in quotes."),
    ("undefined alias", "Define it with `&name` before it is used with `*name`, or put the text in quotes."),
    ("unexpected end of stream", "Close the quote that was opened."),
)


@dataclass(slots=True)
class Document:
    """What a YAML text says, where it says so, and what is wrong with it."""

    data: Any
    lines: dict[Path, tuple[str, int]]
    problems: list[Problem] = field(default_factory=list)


def read_yaml(text: str, file: str, base: Path = ()) -> Document:
    """The plain data of a YAML text; keys that have no value are left out.

    Args:
        base: where in a case the text stands; () for a whole case.

    Raises:
        InputError: the text is not YAML, or not one document.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    yaml = YAML(typ="safe", pure=True)
    _check_depth(text, file)
    try:
        node = yaml.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise InputError(_syntax_problem(error, file, mark.line + 1 if mark else 0)) from None
    except YAMLError as error:
        problem = Problem("not readable as YAML: " + " ".join(str(error).split()), file=file)
        raise InputError(problem) from None
    except RecursionError:
        raise _too_deep(file, 0) from None
    document = Document(None, {})
    if node is not None:
        document.data = _Builder(yaml, file, document).build(node, base)
    return document


def _check_depth(text: str, file: str) -> None:
    """Brackets cost the parser time that grows with the square of their depth."""
    depth = 0
    for bracket in _BRACKET.finditer(text):
        depth = depth + 1 if bracket[0] in "[{" else max(depth - 1, 0)
        if depth > MAX_DEPTH:
            raise _too_deep(file, text.count("\n", 0, bracket.start()) + 1)


def _too_deep(file: str, line: int) -> InputError:
    fix = "Close every [ with ] and every { with }."
    return InputError(Problem("lists are nested too deeply to be a case", file=file, line=line, fix=fix))


def _syntax_problem(error: Any, file: str, line: int) -> Problem:
    words = " ".join(f"{error.context or ''} {error.problem or ''}".split())
    fix = next((fix for part, fix in _SYNTAX_FIXES if part in words), "Check the line and the one before it.")
    return Problem(f"not valid YAML: {words}", file=file, line=line, fix=fix)


class _Builder:
    """Walks the node tree once; a mistake is noted and the walk goes on."""

    def __init__(self, yaml: YAML, file: str, document: Document) -> None:
        self._constructor = yaml.constructor
        self._file = file
        self._document = document
        self._count = 0
        self._open: set[int] = set()

    def build(self, node: Node, path: Path) -> Any:
        """The data of a node."""
        self._count += 1
        if self._count > MAX_NODES:
            message = f"more than {MAX_NODES} values, with every use of an anchor counted"
            raise InputError(
                Problem(message, file=self._file, fix="A case is a short text; remove what repeats.")
            )
        if id(node) in self._open:
            self._note(node, path, "an anchor that contains itself", "Write the value out.")
            return None
        if node.id != "scalar" and node.tag not in (f"{_TAG}map", f"{_TAG}seq"):
            self._note_tag(node, path)
        self._open.add(id(node))
        try:
            if node.id == "mapping":
                return self._mapping(node, path)
            if node.id == "sequence":
                return self._sequence(node, path)
            return self._scalar(node, path)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: Node, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        merged: list[Node] = []
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == f"{_TAG}merge":
                merged += value_node.value if value_node.id == "sequence" else [value_node]
            elif key_node.id != "scalar":
                self._note(key_node, path, "a key that is not plain text", "Write keys as `key: value`.")
            elif key_node.value in first:
                message = f"the key is given twice, first on line {first[key_node.value]}"
                self._note(key_node, (*path, key_node.value), message, "Keep one of them.")
            else:
                first[key_node.value] = line
                self._entry(data, (*path, key_node.value), line, value_node)
        for other in merged:
            self._merge(data, other, path)
        return data

    def _entry(self, data: dict[str, Any], path: Path, line: int, value_node: Node) -> None:
        self._document.lines[path] = (self._file, line)
        value = self.build(value_node, path)
        if value is not None:
            data[str(path[-1])] = value

    def _merge(self, data: dict[str, Any], node: Node, path: Path) -> None:
        """Keys of ``<<: *anchor`` that the mapping does not have itself."""
        if node.id != "mapping":
            self._note(
                node, path, "<< is not followed by a mapping", "Write `<<: *name` of a mapping with &name."
            )
            return
        for key_node, value_node in node.value:
            if key_node.id == "scalar" and (*path, key_node.value) not in self._document.lines:
                self._entry(data, (*path, key_node.value), key_node.start_mark.line + 1, value_node)

    def _sequence(self, node: Node, path: Path) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            self._document.lines[*path, index] = (self._file, item.start_mark.line + 1)
            items.append(self.build(item, (*path, index)))
        return items

    def _scalar(self, node: Node, path: Path) -> Any:
        text: str = node.value
        kind = str(node.tag).removeprefix(_TAG)
        if kind not in ("str", "timestamp", "int", "float", "bool", "null"):
            self._note_tag(node, path)
            return None
        if kind in ("str", "timestamp") or (kind != "null" and TEXT_KEYS & set(path[-2:])):
            return text
        try:
            value = self._constructor.construct_object(node)
            if isinstance(value, int):
                float(value)
            return value
        except (ValueError, OverflowError):
            self._note(
                node, path, f"{shown(text)} is not a number that can be used", "Write a smaller number."
            )
            return None

    def _note_tag(self, node: Node, path: Path) -> None:
        self._note(node, path, f"the tag {node.tag} has no meaning here", "Write the value without a tag.")

    def _note(self, node: Node, path: Path, message: str, fix: str) -> None:
        line = node.start_mark.line + 1
        problem = Problem(message, key=dotted(path), file=self._file, line=line, fix=fix)
        self._document.problems.append(problem)
