"""``envdoctor ignore ID --reason``: write down that a finding is accepted in this project."""

import json
from datetime import date
from pathlib import Path

from envdoctor.app.configuration import find_configuration, load_configuration
from envdoctor.app.errors import UsageProblem
from envdoctor.app.whole_file import write_whole
from envdoctor.facts.registry import FactTypeError, parse_value
from envdoctor.facts.values import spell
from envdoctor.judge.finding import Ignore
from envdoctor.matrix.matrix import Matrix
from envdoctor.matrix.rules import Rule, with_conditions
from envdoctor.matrix.toml_files import LARGEST, TomlError, parse_toml
from envdoctor.system.files import Files
from envdoctor.system.message import Message, did_you_mean


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
    keys = {condition.key for clause in with_conditions(rule).affects for condition in clause}
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
