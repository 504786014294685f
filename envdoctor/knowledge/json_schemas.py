"""Check documents of a checkout by the JSON Schemas in ``matrices/schema``, which editors complete them by.

The library jsonschema does it (extra ``lint``).
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

from envdoctor.knowledge.entry_statements import parse_statement
from envdoctor.versions.pep440 import is_version, satisfies
from envdoctor.versions.releases import parse_ranges


class Schemas:
    """The schemas of a folder. Raises :class:`ImportError` without the library."""

    def __init__(self, folder: Path) -> None:
        import jsonschema

        self._library = jsonschema
        self._folder = folder

    def faults(self, name: str, document: Mapping[str, Any]) -> Iterator[str]:
        """Yield what is wrong with a document, each with its place: "row 2: key: ..."."""
        if name not in self._documents:
            yield "no schema says what is in it"
            return
        validator = self._class(self._documents[name], registry=self._registry, format_checker=_formats())
        found = validator.iter_errors(_as_json(document))
        for error in sorted(found, key=lambda error: [str(part) for part in error.absolute_path]):
            message = error.message if len(error.message) <= 160 else f"{error.message[:157]}..."
            yield f"{_place(error.absolute_path)}{message}"

    @cached_property
    def _documents(self) -> Mapping[str, Any]:
        return {path.stem: json.loads(path.read_bytes()) for path in self._folder.glob("*.json")}

    @cached_property
    def _registry(self) -> Any:
        from referencing import Registry
        from referencing.jsonschema import DRAFT7

        shared = ("common", "conditions")
        known = [(f"{name}.json", self._documents[name]) for name in shared if name in self._documents]
        return Registry().with_resources((name, DRAFT7.create_resource(schema)) for name, schema in known)

    @cached_property
    def _class(self) -> Any:
        return self._library.validators.extend(self._library.Draft7Validator, {"x-unique": _unique})


def _unique(validator: Any, columns: list[str], rows: Any, schema: Any) -> Iterator[Any]:
    """No two rows have the same values in these columns."""
    from jsonschema import ValidationError

    seen = []
    for number, row in enumerate(rows if isinstance(rows, list) else ()):
        identity = [row.get(column) for column in columns] if isinstance(row, dict) else [number]
        if identity in seen:
            yield ValidationError(f"{', '.join(columns)}: {', '.join(map(str, identity))} occurs twice", path=[number])
        seen.append(identity)


def _formats() -> Any:
    """Return the checker of formats that JSON Schema does not know."""
    from jsonschema import FormatChecker

    checker = FormatChecker()
    tests: Mapping[str, Callable[[str], object]] = {
        "version": is_version,
        "specifier": lambda text: text and satisfies("1", text) is not None,
        "releases": parse_ranges,
        "statement": parse_statement,
        "bounded-pattern": _is_bounded,
        "date": date.fromisoformat,
    }
    for name, test in tests.items():
        checker.checks(name, raises=(ValueError, re.error))(
            lambda text, test=test: not isinstance(text, str) or test(text)
        )
    return checker


def _is_bounded(pattern: str) -> bool:
    """Return whether a regular expression has the group ``value`` and nothing in it repeats without end."""
    plain = re.sub(r"\[[^\]]*\]?", "x", re.sub(r"\\.", "x", pattern))
    return "value" in re.compile(pattern).groupindex and not re.search(r"[*+]|,\}", plain)


def _as_json(value: Any) -> Any:
    match value:
        case Mapping():
            return {key: _as_json(item) for key, item in value.items()}
        case list():
            return [_as_json(item) for item in value]
        case date():
            return value.isoformat()
    return value


def _place(path: Any) -> str:
    """``["row", 1, "key"]`` is the place "row 2: key: "."""
    text = ""
    for part in path:
        text = f"{text[:-2]} {part + 1}: " if isinstance(part, int) and text else f"{text}{part}: "
    return text
