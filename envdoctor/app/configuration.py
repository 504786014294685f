"""The project's configuration: ``[tool.envdoctor]`` of pyproject.toml, or envdoctor.toml."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from pathlib import Path
from typing import Any

from envdoctor.app.errors import UsageProblem
from envdoctor.judge.policy import Ignore
from envdoctor.knowledge.toml_files import TomlError, load_toml
from envdoctor.knowledge.vocabulary import CONFIDENCES, SEVERITIES
from envdoctor.text.files import Files, because_of

__all__ = ["Configuration", "find_configuration", "load_configuration"]

_LANGUAGES = ("auto", "en", "zh")
_KEYS = ("fail-on", "fail-confidence", "lang", "model", "matrix", "require", "set", "rules", "ignore")


@dataclass(frozen=True)
class Configuration:
    """What the file says; None and empty where it says nothing. ``matrix`` holds absolute folders."""

    path: Path | None = None
    fail_on: str | None = None
    fail_confidence: str | None = None
    lang: str | None = None
    model: str | None = None
    matrix: tuple[Path, ...] = ()
    require: tuple[str, ...] = ()
    assignments: tuple[str, ...] = ()
    severities: Mapping[str, str] = field(default_factory=dict)
    ignores: tuple[Ignore, ...] = ()


def find_configuration(start: Path) -> Path | None:
    """The nearest envdoctor.toml, or pyproject.toml with ``[tool.envdoctor]``, from ``start`` up to the project's root
    (the folder with .git).

    Raises :class:`UsageProblem` for one that cannot be read, which may hold the settings of a gate, and for one that
    belongs to neither this user, root, nor the owner of ``start``.
    """
    for folder in (start, *start.parents):
        own, project = folder / "envdoctor.toml", folder / "pyproject.toml"
        if os.path.lexists(own):
            return _trusted(own, start)
        # Most have no table of ours: the parser is spared.
        if os.path.lexists(project) and b"tool.envdoctor" in _content(project):
            return _trusted(project, start)
        if os.path.lexists(folder / ".git"):
            return None
    return None


def _content(path: Path) -> bytes:
    try:
        return Files().whole(str(path), 8 << 20)
    except OSError as error:
        raise UsageProblem(
            f"{path}: cannot be read: {because_of(error)}; it may hold settings of envdoctor. --no-config runs without"
        ) from None


def _trusted(path: Path, start: Path) -> Path:
    """The path; refused when somebody else may have put it there: in /tmp, or in another user's folder."""
    if not hasattr(os, "geteuid"):
        return path
    try:
        owners = {os.lstat(path).st_uid, os.stat(path).st_uid}
        strangers = owners - {0, os.geteuid(), os.stat(start).st_uid}
    except OSError as error:
        raise UsageProblem(f"{path}: cannot be read: {because_of(error)}") from None
    if strangers:
        raise UsageProblem(
            f"{path}: belongs to another user (uid {strangers.pop()}) and is not obeyed; --config {path} uses it all "
            "the same, --no-config runs without"
        )
    return path


def load_configuration(path: Path) -> Configuration:
    """Read and check one file. Raises :class:`UsageProblem`, which names the file and the key."""
    try:
        document = load_toml(path)
    except TomlError as error:
        raise UsageProblem(str(error)) from None
    table: Any = document
    if path.name == "pyproject.toml" or set(document) == {"tool"}:
        tool = document.get("tool", {})
        table = tool.get("envdoctor", {}) if isinstance(tool, dict) else None
    if not isinstance(table, dict):
        raise UsageProblem(f"{path}: tool.envdoctor: a table is expected")
    return _Reader(path, table).configuration()


class _Reader:
    """Reads one table; every complaint names the file and the key."""

    def __init__(self, path: Path, table: Mapping[str, Any]) -> None:
        self.path = path
        self.table = table

    def configuration(self) -> Configuration:
        for key in self.table:
            if key not in _KEYS:
                from difflib import get_close_matches

                near = get_close_matches(key, _KEYS, n=1)
                hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(_KEYS)}"
                raise self.wrong(key, f"unknown key{hint}")
        folder = self.path.parent
        return Configuration(
            path=self.path,
            fail_on=self.choice("fail-on", SEVERITIES),
            fail_confidence=self.choice("fail-confidence", CONFIDENCES),
            lang=self.choice("lang", _LANGUAGES),
            model=self.text("model"),
            matrix=tuple(folder / name for name in self.texts("matrix")),
            require=self.texts("require"),
            assignments=self.assignments(),
            severities=self.severities(),
            ignores=tuple(self.ignore(number, entry) for number, entry in enumerate(self.tables("ignore"), 1)),
        )

    def wrong(self, key: str, problem: str) -> UsageProblem:
        return UsageProblem(f"{self.path}: {key}: {problem}")

    def text(self, key: str) -> str | None:
        value = self.table.get(key)
        if value is not None and not isinstance(value, str):
            raise self.wrong(key, "a text is expected")
        return value

    def choice(self, key: str, allowed: tuple[str, ...]) -> str | None:
        value = self.text(key)
        if value is not None and value not in allowed:
            raise self.wrong(key, f"{value!r} is none of {', '.join(allowed)}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.table.get(key, [])
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(key, "a list of text is expected")
        return tuple(value)

    def tables(self, key: str) -> list[Mapping[str, Any]]:
        value = self.table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.wrong(key, f"an array of tables ([[tool.envdoctor.{key}]]) is expected")
        return value

    def assignments(self) -> tuple[str, ...]:
        value = self.table.get("set", {})
        if not isinstance(value, dict):
            raise self.wrong("set", 'a table such as { "recipe.batch_size" = 2 } is expected')
        return tuple(f"{key}={_spelled(item)}" for key, item in _flat(value))

    def severities(self) -> Mapping[str, str]:
        value = self.table.get("rules", {})
        allowed = ("off", *SEVERITIES)
        if not isinstance(value, dict):
            raise self.wrong("rules", 'a table such as { rule-id = "off" } is expected')
        for rule, level in value.items():
            if level not in allowed:
                raise self.wrong(f"rules: {rule}", f"{level!r} is none of {', '.join(allowed)}")
        return value

    def ignore(self, number: int, entry: Mapping[str, Any]) -> Ignore:
        where = f"ignore {number}"
        for key in entry:
            if key not in ("id", "reason", "until", "where"):
                raise self.wrong(where, f"unknown key {key!r}; known are id, reason, until, where")
        rule, reason, until = entry.get("id"), entry.get("reason"), entry.get("until")
        if not isinstance(rule, str) or not rule:
            raise self.wrong(where, "id is missing")
        if not isinstance(reason, str) or not reason.strip():
            raise self.wrong(where, f"{rule}: a reason is required")
        if until is not None and (not isinstance(until, date) or isinstance(until, datetime)):
            raise self.wrong(where, f"{rule}: until: a date such as 2027-01-31 is expected")
        matching = entry.get("where", {})
        if not isinstance(matching, dict):
            raise self.wrong(where, f'{rule}: where: a table such as {{ "gpu.name" = "Tesla T4" }} is expected')
        return Ignore(
            id=rule,
            reason=reason,
            until=until,
            where={
                key: f"{value:g}" if isinstance(value, float) else _spelled(value) for key, value in _flat(matching)
            },
            origin=self.path.name,
        )


def _flat(table: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Keys and values; ``gpu.name = "Tesla T4"`` without quotes round the key is a table in a table, and means it."""
    waiting = list(table.items())[::-1]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(f"{key}.{inner}"[:200], item) for inner, item in value.items()][::-1]
        else:
            yield key, value


def _spelled(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(_spelled(item) for item in value)
    return str(value)
