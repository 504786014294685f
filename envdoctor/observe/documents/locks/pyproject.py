"""pyproject.toml as a list to be installed: its dependencies, chosen extras and groups, and what uv is told of them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from envdoctor.facts.values import Origin
from envdoctor.matrix.toml_files import TomlError, parse_toml
from envdoctor.observe.documents.locks.lock import Lock, LockError, Wish, items, left_out, line_of, words
from envdoctor.observe.documents.locks.requirements import Requirements
from envdoctor.versions.requirement import normalise

_ELSEWHERE = ("git", "url", "path", "workspace", "file")
_MOST_GROUPS = 100


def read(text: str, path: str, wish: Wish) -> Lock:
    """What an install of the project would bring. Raises :class:`LockError`."""
    try:
        document = parse_toml(text.encode("utf-8", "replace"), "")
    except TomlError as error:
        raise LockError("is {}", error.problem) from None
    project, tool = _table(document, "project"), _table(document, "tool")
    uv, poetry = _table(tool, "uv"), _table(tool, "poetry")
    named = {**_table(document, "dependency-groups"), **_table(project, "optional-dependencies")}
    groups = {normalise(name): value for name, value in named.items()}
    chosen = [name for name in wish.names if normalise(name) in groups]
    of_poetry = [*_poetry(_table(poetry, "dependencies"))]
    lines = [*words(project.get("dependencies")), *of_poetry]
    for name in chosen:
        lines += _of_group(groups, normalise(name), set())
    own = normalise(str(project.get("name") or poetry.get("name") or ""))
    sources = {normalise(name): source for name, source in _table(uv, "sources").items()}
    replacing = Requirements(path, wish)
    for line in words(uv.get("override-dependencies")):
        replacing.line(line, path, _place(text, path, line))
    found = Requirements(path, wish)
    for index in (*items(uv.get("index")), *items(poetry.get("source"))):
        found.line(f"--extra-index-url {index.get('url', '')}", path, _place(text, path, str(index.get("url", ""))))
    # Files from which setuptools takes the dependencies.
    files = _table(_table(_table(tool, "setuptools"), "dynamic"), "dependencies").get("file")
    for file in [files] if isinstance(files, str) else words(files):
        found.line(f"-r {file}", path, _place(text, path, file))
    for line in lines:
        name = normalise(re.split(r"[^\w.-]", line.strip(), maxsplit=1)[0])
        if name != own:
            found.line(_from_source(line, name, sources), path, _place(text, path, line))
    for line in words(uv.get("constraint-dependencies")):
        found.line(line, path, _place(text, path, line), constraints=True)
    lock = found.lock()
    if not lock.packages:
        raise LockError("names no package that is installed with the project")
    built = (*words(uv.get("no-build-isolation-package")), *_table(uv, "extra-build-dependencies"))
    isolated, overrides = not built and not uv.get("no-build-isolation"), replacing.command().lines
    command = found.command()._replace(isolated=isolated, overrides=overrides)
    if of_poetry:  # whose versions mean more than those of pip
        command = command._replace(invalid=())
    others = [name for name in groups if name not in map(normalise, wish.names)]
    notes = (*lock.notes, *((left_out(others),) if others else ()))
    return lock._replace(notes=notes, commands=(command,))


def _table(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _of_group(groups: Mapping[str, Any], name: str, seen: set[str]) -> Iterator[str]:
    """The lines of a group, and of those that it includes."""
    if name in seen or len(seen) > _MOST_GROUPS:
        return
    seen.add(name)
    for entry in groups[name] if isinstance(groups.get(name), list) else ():
        match entry:
            case str():
                yield entry
            case {"include-group": str(included)}:
                yield from _of_group(groups, normalise(included), seen)


def _from_source(line: str, name: str, sources: Mapping[str, Any]) -> str:
    """The line as uv reads it: from a repository or a folder where a source says so."""
    source = sources.get(name)
    if isinstance(source, dict) and "marker" not in source:
        taken = next((key for key in _ELSEWHERE if source.get(key)), None)
        if taken is not None:
            return f"{name} @ {source[taken] if taken == 'url' else f'git+https://host.invalid/{name}'}"
    return line


def _poetry(table: Mapping[str, Any]) -> Iterator[str]:
    """The dependencies of poetry as requirements; its Python and what may be left out are not among them."""
    for name, asked in table.items():
        given = asked if isinstance(asked, dict) else {"version": asked}
        if name == "python" or given.get("optional"):
            continue
        if any(given.get(key) for key in _ELSEWHERE):
            yield f"{name} @ git+https://host.invalid/{name}"
        elif isinstance(given.get("version"), str):
            marker = given["markers"] if isinstance(given.get("markers"), str) else ""
            yield line_of(name, words(given.get("extras")), ",".join(_clauses(given["version"])), marker)


def _clauses(text: str) -> Iterator[str]:
    """PEP 440's specifiers of poetry's: ``^1.2`` is ``>=1.2,<2``, ``~1.2`` is ``>=1.2,<1.3``, ``1.2`` is ``==1.2``."""
    for clause in filter(None, (part.strip() for part in re.split(r",|\s(?=[<>=!^~])", text))):
        match = re.fullmatch(r"([\^~])\s*(\d[\w.]*)", clause)
        if match is None:
            yield "" if clause == "*" else clause if clause[0] in "<>=!~" else f"=={clause}"
            continue
        numbers = [int(part) for part in re.findall(r"\d{1,9}", match[2])][:3]
        place = min(1 if len(numbers) > 1 else 0, len(numbers) - 1)
        if match[1] == "^":
            place = next((at for at, number in enumerate(numbers) if number), len(numbers) - 1)
        yield f">={match[2]}"
        yield "<" + ".".join(map(str, [*numbers[:place], numbers[place] + 1]))


def _place(text: str, path: str, sought: str) -> str:
    """``pyproject.toml:12``: the first line that has what is sought."""
    at = text.find(re.split(r"[\s\[<>=!~@;]", sought, maxsplit=1)[0]) if sought not in text else text.find(sought)
    return Origin(path, text.count("\n", 0, at) + 1) if at >= 0 and sought else path
