"""The files of a project. Its configuration: ``[tool.envdoctor]`` of pyproject.toml, or envdoctor.toml. What it
accepts: a finding with a reason (``envdoctor ignore ID --reason``), and a baseline, the findings that it has today and
means to live with, so that only new ones fail its runs. A file is written whole or not at all."""

import json
import os
from collections.abc import Collection, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from envdoctor.app.errors import JobError, UsageProblem, told_as
from envdoctor.facts.registry import FactTypeError, parse_value
from envdoctor.facts.values import spell
from envdoctor.judge.finding import Ignore, Known, Policy, baseline_state, stale
from envdoctor.matrix.matrix import LARGEST, Matrix, TomlError, load_toml, parse_toml
from envdoctor.matrix.rules import CONFIDENCES, SEVERITIES, Rule
from envdoctor.report.report import Report
from envdoctor.system.files import Files, because_of
from envdoctor.system.message import NOTHING, Message, did_you_mean

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
    from envdoctor.observe.documents.facts_file import spelled

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


def write_whole(path: Path, text: str) -> None:
    """Replace a file (or make it), as UTF-8 with the line ends of ``text``; a link stays a link, and an existing file
    keeps its permissions. A pipe or a device (/dev/stdout) is written into. Raises :class:`JobError`."""
    import tempfile  # brings OpenSSL's hashes along: a run that writes no file does without

    try:
        if path.exists() and not path.is_file():
            # Without O_NONBLOCK the open of a pipe without a reader would wait; the writing may.
            descriptor = os.open(path, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))
            with os.fdopen(descriptor, "wb") as file:
                if hasattr(os, "set_blocking"):
                    os.set_blocking(descriptor, True)
                file.write(text.encode("utf-8"))
            return
        path = Path(os.path.realpath(path))
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(text.encode("utf-8"))
            mask = os.umask(0)  # it can only be read by setting it
            os.umask(mask)
            os.chmod(name, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~mask)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise JobError("{}: cannot be written: {}", path, because_of(error)) from None


def write_ignore(entry: Ignore, *, start: Path, config: Path | None) -> Path:
    """Append the entry to the project's configuration and return its path; a new envdoctor.toml when there is none.
    The rest of the file stays as it is. Raises :class:`UsageProblem` and :class:`JobError`."""
    project = start / "pyproject.toml"  # although it says nothing of envdoctor yet
    path = config or find_configuration(start) or (project if project.is_file() else start / "envdoctor.toml")
    before = ""
    table = "tool.envdoctor.ignore" if path.name == "pyproject.toml" else "ignore"
    if path.exists():
        present = load_configuration(path)  # a file that is already wrong is not made worse
        about = (entry.id, dict(entry.where), entry.path)
        holding = (old for old in present.ignores if old.until is None or old.until >= date.today())
        if any((ignore.id, dict(ignore.where), ignore.path) == about for ignore in holding):
            raise UsageProblem("{}: {} is accepted there already; edit the entry to change it", path, entry.id)
        data = Files().whole(str(path), LARGEST)
        before = data.decode()
        if set(parse_toml(data, str(path))) == {"tool"}:
            table = "tool.envdoctor.ignore"
    line_end = "\r\n" if "\r\n" in before else "\n"
    text = _text(table, entry).replace("\n", line_end)
    after = before.rstrip("\r\n") + (line_end * 2 if before.strip() else "") + text
    try:
        parse_toml(after.encode(), str(path))
    except TomlError as error:
        raise UsageProblem("{}: `{}` is written inline there; add the entry by hand", error, table) from None
    write_whole(path, after)
    return path


def demand_match(rule: Rule, key: str, value: str, matrix: Matrix) -> str:
    """Return the value as findings of the rule spell it. Raises :class:`UsageProblem` if no finding can have it."""
    spec = matrix.registry.find(rule.each) if rule.each else None
    keys = {condition.key for clause in rule.affects for condition in clause}
    keys |= {f"{rule.each}.{column}" for column in spec.identity} if spec is not None else set()
    if key not in keys:
        hint = did_you_mean(key, keys, Message("they have {}", ", ".join(sorted(keys))))
        raise UsageProblem("--where {}: findings of {} do not have it; {}", key, rule.id, hint)
    column = matrix.registry.find(key)
    try:
        spelled = spell(parse_value(column, value)) if column is not None else value
    except FactTypeError as error:
        raise UsageProblem("--where {}={}: {}", key, value, error) from None
    if column is not None and column.values and spelled not in column.values:
        hint = did_you_mean(value, column.values, Message("known are {}", ", ".join(column.values)))
        raise UsageProblem("--where {}={}: no finding has that; {}", key, value, hint)
    return spelled


def _text(table: str, entry: Ignore) -> str:
    pairs = ", ".join(f"{_quoted(key)} = {_quoted(value)}" for key, value in entry.where.items())
    values = {
        "id": _quoted(entry.id),
        "reason": _quoted(entry.reason),
        "until": entry.until.isoformat() if entry.until is not None else "",
        "until-fixed": "true" if entry.until_fixed else "",
        "where": f"{{ {pairs} }}" if pairs else "",
        "path": _quoted(entry.path) if entry.path is not None else "",
    }
    return "\n".join([f"[[{table}]]", *(f"{key} = {value}" for key, value in values.items() if value), ""])


def _quoted(text: str) -> str:
    # A JSON string is a TOML basic string, except that TOML wants DEL escaped too.
    # An argument that is not UTF-8 reaches us with lone surrogates, which no file can hold.
    text = text.encode("utf-8", "replace").decode()
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# --- the baseline -----------------------------------------------------------------------------------------------------

SCHEMA = "envdoctor.baseline/1"
_LARGEST = 16 << 20


def read_baseline(path: Path) -> tuple[Known, ...]:
    """Return the findings of the file. Raises :class:`UsageProblem`: an unreadable gate does not stand open."""
    try:
        document = json.loads(Files().whole(str(path), _LARGEST))
    except OSError as error:
        hint = NOTHING if path.exists() else Message("; --write-baseline writes one")
        raise UsageProblem("{}: cannot be read: {}{}", path, because_of(error), hint) from None
    except (ValueError, RecursionError) as error:
        raise UsageProblem("{}: not JSON: {}", path, error) from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UsageProblem('{}: "schema": "{}" is expected; --write-baseline writes it', path, SCHEMA)
    entries = document.get("findings")
    if not isinstance(entries, list):
        raise UsageProblem("{}: findings: a list is expected", path)
    return tuple(_entry(path, number, entry) for number, entry in enumerate(entries))


def _entry(path: Path, number: int, entry: Any) -> Known:
    match {"item": {}, "superseded_by": None, **entry} if isinstance(entry, dict) else None:
        case {"id": str(name), "item": dict(item), "severity": str(severity), "superseded_by": str() | None as by}:
            if severity in SEVERITIES and all(isinstance(value, str) for value in item.values()):
                return Known(name, item, severity, by)
    raise UsageProblem("{}: findings[{}]: id, item (a table of texts) and severity are expected", path, number)


def write_baseline(path: Path, report: Report, before: tuple[Known, ...] | None) -> list[Known]:
    """Write the findings that the project accepts from now on, and return them. Without a baseline so far, these are
    all findings that are not ignored; with one, its findings that still stand: an update never accepts a new finding.
    Raises :class:`JobError`, also for an incomplete run."""
    if report.status != "complete":
        raise JobError("{} was not written because an incomplete run may lack findings", path)
    if before is None:
        shown = [case for case in report.findings if case.ignored is None]
        kept = [Known(case.id, case.item, case.severity, case.superseded_by) for case in shown]
    else:
        ended = stale(before, report.findings, report.passed)
        kept = [case for case in before if case not in ended]
    entries = [{key: value for key, value in case._asdict().items() if value is not None} for case in kept]
    entries.sort(key=lambda entry: (entry["id"], sorted(entry["item"].items())))
    write_whole(path, json.dumps({"schema": SCHEMA, "findings": entries}, indent=1) + "\n")
    return kept


def accepted(report: Report, baseline: Collection[Known]) -> Report:
    """Return the report as the next run with the baseline just written gives it: nothing in it fails the run."""
    return report.changed(
        findings=tuple(case._replace(baseline=baseline_state(case, baseline), gate=False) for case in report.findings),
        exit_code=0,
        targets=tuple(target._replace(exit_code=0) for target in report.targets),
    )
