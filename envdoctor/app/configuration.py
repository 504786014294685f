"""The project's configuration: ``[tool.envdoctor]`` of pyproject.toml, or envdoctor.toml."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envdoctor.app.errors import UsageProblem
from envdoctor.judge.policy import Ignore
from envdoctor.knowledge.toml_files import TomlError, parse_toml
from envdoctor.knowledge.vocabulary import CONFIDENCES, SEVERITIES

__all__ = ["Configuration", "find_configuration", "load_configuration"]


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
    (the folder with .git)."""
    for folder in (start, *start.parents):
        own = folder / "envdoctor.toml"
        if own.is_file():
            return own
        project = folder / "pyproject.toml"
        try:
            if b"tool.envdoctor" in project.read_bytes():  # most have none: spare the parser
                return project
        except OSError:
            pass
        if (folder / ".git").exists():
            return None
    return None


def load_configuration(path: Path) -> Configuration:
    """Read and check one file. Raises :class:`UsageProblem`, which names the file and the key."""
    try:
        document = parse_toml(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageProblem(f"{path}: cannot be read: {error.strerror or error}") from None
    except TomlError as error:
        raise UsageProblem(str(error)) from None
    said: Any = document
    if path.name == "pyproject.toml" or set(document) == {"tool"}:
        tool = document.get("tool", {})
        said = tool.get("envdoctor", {}) if isinstance(tool, dict) else None
    if not isinstance(said, dict):
        raise UsageProblem(f"{path}: tool.envdoctor: a table is expected")
    for complaint in _complaints(said):
        raise UsageProblem(f"{path}: {complaint}")
    return Configuration(
        path=path,
        fail_on=said.get("fail-on"),
        fail_confidence=said.get("fail-confidence"),
        lang=said.get("lang"),
        model=said.get("model"),
        matrix=tuple(path.parent / name for name in _list(said.get("matrix", []))),
        require=tuple(_list(said.get("require", []))),
        assignments=tuple(f"{key}={_spelled(item)}" for key, item in _flat(said.get("set", {}))),
        severities=said.get("rules", {}),
        ignores=tuple(_ignore(entry, path.name) for entry in said.get("ignore", [])),
    )


def _complaints(said: Mapping[str, Any]) -> Iterable[str]:
    # Most projects have no configuration: they need no schema.
    from envdoctor.knowledge.schema import DATE, TEXT, TEXTS, either, mapping, one_of, table, tables, text, value

    settings = value('a table such as { "recipe.batch_size" = 2 }', lambda given: isinstance(given, dict))
    ignore = table({"id": TEXT, "reason": text("a reason", str.strip)}, {"until": DATE, "where": settings})
    return table(
        {},
        {
            "fail-on": one_of(*SEVERITIES),
            "fail-confidence": one_of(*CONFIDENCES),
            "lang": one_of("auto", "en", "zh"),
            "model": TEXT,
            "matrix": either(TEXT, TEXTS),
            "require": either(TEXT, TEXTS),
            "set": settings,
            "rules": mapping(TEXT, one_of("off", *SEVERITIES)),
            "ignore": tables(ignore),
        },
    )(said)


def _ignore(entry: Mapping[str, Any], origin: str) -> Ignore:
    where = {
        key: f"{value:g}" if isinstance(value, float) else _spelled(value)
        for key, value in _flat(entry.get("where", {}))
    }
    return Ignore(entry["id"], entry["reason"], entry.get("until"), where, origin)


def _list(value: Any) -> list[str]:
    """A text may stand for a list of one."""
    return [value] if isinstance(value, str) else value


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
