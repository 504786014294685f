"""The project's configuration: ``[tool.envdoctor]`` of pyproject.toml, or envdoctor.toml."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from envdoctor.app.errors import UsageProblem, told_as
from envdoctor.judge.finding import Ignore, Policy
from envdoctor.matrix.rules import CONFIDENCES, SEVERITIES
from envdoctor.matrix.toml_files import TomlError, load_toml
from envdoctor.system.files import Files, because_of

_STRANGE = (
    "{}: belongs to another user (uid {}) and is not obeyed; --config {} uses it all the same, --no-config runs without"
)


#: Options that may stand in the file under their own name: files beside it, and target machines.
_FILES, _TARGETS = ("lock", "baseline"), ("target-python", "target-platform", "target-gpu", "target-driver")


class Configuration(NamedTuple):
    """The settings of the file; None and empty if it lacks them. ``recipe``, ``code`` and ``matrix`` hold absolute
    paths. ``options`` has ``lock``, ``baseline`` (absolute paths) and ``target_python`` ... (texts) if they are given.
    An interpreter cannot be named: it would be started for whoever opens a pull request."""

    path: Path | None = None
    fail_on: str | None = None
    fail_confidence: str | None = None
    lang: str | None = None
    model: str | None = None
    recipe: tuple[Path, ...] = ()
    code: tuple[Path, ...] = ()
    matrix: tuple[Path, ...] = ()
    require: tuple[str, ...] = ()
    assignments: tuple[tuple[str, object], ...] = ()
    severities: Mapping[str, str] = {}
    ignores: tuple[Ignore, ...] = ()
    options: Mapping[str, Any] = {}

    def policy(self, **options: Any) -> Policy:
        """Return the gate and the findings that the project accepts; ``options`` that are not None win."""
        gate = {name: getattr(self, name) for name in ("fail_on", "fail_confidence", "ignores", "severities")}
        gate |= {name: value for name, value in options.items() if value is not None}
        return Policy(**{name: value for name, value in gate.items() if value is not None})


def find_configuration(start: Path) -> Path | None:
    """Return the nearest envdoctor.toml, or pyproject.toml with ``[tool.envdoctor]``, from ``start`` up to the
    project's root (the folder with .git). Raises :class:`UsageProblem` for a file that cannot be read, which may hold
    the settings of a gate, and for one that belongs to neither this user, root, nor the owner of ``start``."""
    for folder in (start, *start.parents):
        own, project = folder / "envdoctor.toml", folder / "pyproject.toml"
        if os.path.lexists(own):
            return _trusted(own, start)
        # Most projects have no table of ours: the parser is spared.
        try:
            if os.path.lexists(project) and b"tool.envdoctor" in Files().whole(str(project), 8 << 20):
                return _trusted(project, start)
        except OSError as error:
            text = "{}: cannot be read: {}; it may hold settings of envdoctor. --no-config runs without"
            raise UsageProblem(text, project, because_of(error)) from None
        if os.path.lexists(folder / ".git"):
            return None
    return None


def _trusted(path: Path, start: Path) -> Path:
    """Return the path, unless another user may have put the file there: in /tmp, or in that user's folder."""
    if not hasattr(os, "geteuid"):
        return path
    try:
        owners = {os.lstat(path).st_uid, os.stat(path).st_uid}
        strangers = owners - {0, os.geteuid(), os.stat(start).st_uid}
    except OSError as error:
        raise UsageProblem("{}: cannot be read: {}", path, because_of(error)) from None
    if strangers:
        raise UsageProblem(_STRANGE, path, strangers.pop(), path)
    return path


def load_configuration(path: Path) -> Configuration:
    """Read and check one file. Raises :class:`UsageProblem`, which names the file and the key."""
    with told_as(UsageProblem, TomlError):
        document = load_toml(path)
    settings: Any = document
    if path.name == "pyproject.toml" or set(document) == {"tool"}:
        tool = document.get("tool", {})
        settings = tool.get("envdoctor", {}) if isinstance(tool, dict) else None
    if not isinstance(settings, dict):
        raise UsageProblem("{}: tool.envdoctor: a table is expected", path)
    for complaint in _complaints(settings):
        raise UsageProblem("{}: {}", path, complaint)
    fields: dict[str, Any] = {
        name: settings.get(name.replace("_", "-")) for name in ("fail_on", "fail_confidence", "lang", "model")
    }
    for key in ("recipe", "code", "matrix"):
        fields[key] = tuple(path.parent / name for name in listed(settings.get(key, [])))
    return Configuration(
        path=path,
        **fields,
        require=tuple(listed(settings.get("require", []))),
        assignments=tuple(_flat(settings.get("set", {}))),
        severities=settings.get("rules", {}),
        ignores=tuple(_ignore(entry, path.name) for entry in settings.get("ignore", [])),
        options={
            **{name: path.parent / settings[name] for name in _FILES if name in settings},
            **{name.replace("-", "_"): tuple(listed(settings[name])) for name in _TARGETS if name in settings},
        },
    )


def _complaints(document: Mapping[str, Any]) -> Iterator[str]:
    # Most projects have no configuration, and need none of this.
    from envdoctor.matrix.rule_file import ANY, DATE, FLAG, TABLE, TEXT, TEXT_OR_TEXTS, Kind, faults, one_of, rows

    settings = Kind('a table such as { "recipe.batch_size" = 2 }', TABLE.test)
    reason = Kind("a reason", lambda text: isinstance(text, str) and text.strip())
    levels = one_of("off", *SEVERITIES)
    shapes = {
        "fail-on": one_of(*SEVERITIES),
        "fail-confidence": one_of(*CONFIDENCES),
        "lang": one_of("auto", "en", "zh"),
        "model": TEXT,
        **dict.fromkeys(_FILES, TEXT),
        **dict.fromkeys(("recipe", "code", "matrix", "require", *_TARGETS), TEXT_OR_TEXTS),
        "set": settings,
        "rules": TABLE,
        "ignore": ANY,
    }
    yield from faults(document, {}, shapes)
    rules = document.get("rules")
    for rule_id, level in rules.items() if isinstance(rules, dict) else ():
        yield from (f"rules: {rule_id}: {fault}" for fault in levels.faults(level))
    problems: list[str] = []
    options = {"until": DATE, "until-fixed": FLAG, "where": settings, "path": TEXT}
    for place, entry in rows(document, "ignore", problems):
        yield from faults(entry, {"id": TEXT, "reason": reason}, options, place)
    yield from problems


def _ignore(entry: Mapping[str, Any], origin: str) -> Ignore:
    from envdoctor.observe.recipe.assignments import spelled

    pairs = dict(_flat(entry.get("where", {})))
    where = {key: f"{value:g}" if isinstance(value, float) else spelled(value) for key, value in pairs.items()}
    more = {"path": entry.get("path"), "until_fixed": entry.get("until-fixed", False)}
    return Ignore(entry["id"], entry["reason"], entry.get("until"), where, origin, **more)


def listed(value: Any) -> list[str]:
    """Return the value as a list; a text stands for a list of one."""
    return [value] if isinstance(value, str) else value


def _flat(table: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield keys and values; a table in a table is a dotted key, as ``gpu.name = "Tesla T4"`` without quotes means."""
    waiting = list(table.items())[::-1]
    while waiting:
        key, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(f"{key}.{inner}"[:200], item) for inner, item in value.items()][::-1]
        else:
            yield key, value
