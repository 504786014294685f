"""Which of a rule's fixes is safe to offer: each is tried on the facts and judged again before it is shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.derive import derive
from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import FactTypeError, normalise, parse_value
from envdoctor.facts.values import ABSENT, Absent, Fact, Known, Unknown, Value
from envdoctor.judge.commands import Pin, install_commands
from envdoctor.judge.compare import satisfies
from envdoctor.judge.finding import OfferedFix
from envdoctor.judge.messages import text_of
from envdoctor.knowledge.matrix import Matrix

__all__ = ["Judged", "Verdict", "offer_fixes"]

_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*?)\s*((?:~=|==|!=|<=|>=|<|>).*)\Z")
_BOUND = re.compile(r"(?:>=|==|~=)\s*(\d+(?:\.\d+)*)")
#: How many releases of a range are tried, nearest to the installed one first.
_TRIES = 6


class Verdict(NamedTuple):
    """What a second judgement of changed facts says: the errors it finds (id → message), and whether the rule at
    hand still applies."""

    errors: Mapping[str, str]
    still: bool


Judged = Callable[[FactSet], Verdict]


def offer_fixes(
    fixes: Sequence[Mapping[str, Any]], facts: FactSet, matrix: Matrix, before: Mapping[str, str], judged: Judged
) -> tuple[OfferedFix, ...]:
    """The fixes of a rule in their order; those that would not help or would break something carry ``withheld``.

    ``facts`` must not hold derived facts; ``before`` are the errors that stand now.
    """
    offered: list[OfferedFix] = []
    for fix in fixes:
        if fix["kind"] == "constraint":
            offered.append(_constraint(fix, facts, matrix, before, judged))
        elif fix["kind"] in ("set", "env"):
            offered.append(_change(fix, facts, matrix, before, judged))
        else:
            commands = (fix["command"],) if fix["kind"] == "command" else ()
            offered.append(_offered(fix, commands=commands))
    return tuple(offered)


def _offered(fix: Mapping[str, Any], *, commands: tuple[str, ...] = (), withheld: str | None = None) -> OfferedFix:
    return OfferedFix(
        kind=fix["kind"],
        safety=fix["safety"],
        summary=text_of(fix["summary"]),
        constraints=tuple(fix["constraints"]),
        set={key: str(value) for key, value in fix["set"].items()},
        env={key: str(value) for key, value in fix["env"].items()},
        commands=() if withheld else commands,
        withheld=withheld,
    )


def _change(
    fix: Mapping[str, Any], facts: FactSet, matrix: Matrix, before: Mapping[str, str], judged: Judged
) -> OfferedFix:
    changed = facts.copy()
    changes = fix["set"] if fix["kind"] == "set" else {f"env.{name}": value for name, value in fix["env"].items()}
    for key, raw in changes.items():
        spec = matrix.registry.find(key)
        try:
            value: Value = parse_value(spec, raw) if spec else Unknown("not registered")
        except FactTypeError:
            return _offered(fix)  # a text for a person ("0.8 or lower") cannot be judged
        changed.add(Fact(key, value, "the fix", "given"))
    commands = tuple(f"export {name}={value}" for name, value in fix["env"].items())
    return _offered(fix, commands=commands, withheld=_objection(changed, matrix, before, judged))


def _objection(changed: FactSet, matrix: Matrix, before: Mapping[str, str], judged: Judged) -> str | None:
    derive(changed, matrix)
    verdict = judged(changed)
    if verdict.still:
        return "it would not be enough here"
    new = [rule_id for rule_id in verdict.errors if rule_id not in before]
    return f"it would bring {new[0]}: {verdict.errors[new[0]]}" if new else None


def _constraint(
    fix: Mapping[str, Any], facts: FactSet, matrix: Matrix, before: Mapping[str, str], judged: Judged
) -> OfferedFix:
    parsed = [_REQUIREMENT.match(text) for text in fix["constraints"]]
    wanted = [(normalise(match[1]), match[2].replace(" ", "")) for match in parsed if match]
    objection: str | None = None
    for pins in _candidates(wanted, facts, matrix):
        changed, tag, forbidden = _apply(pins, facts, matrix)
        reason = forbidden or _objection(changed, matrix, before, judged)
        if reason is None:
            return _offered(fix, commands=_commands(pins, tag, facts, matrix))
        objection = objection or reason
    return _offered(fix, withheld=objection or "no release satisfies it")


def _commands(pins: Sequence[Pin], tag: str | None, facts: FactSet, matrix: Matrix) -> tuple[str, ...]:
    judged_now = facts.copy()
    derive(judged_now, matrix)
    installer = judged_now.value("environment.installer")
    return install_commands(
        pins,
        installer=str(installer) if isinstance(installer, str) else "pip",
        interpreter=_interpreter(facts),
        cuda_tag=tag,
        packages=matrix.table("packages"),
    )


def _interpreter(facts: FactSet) -> str | None:
    """The interpreter to name: only when the user pointed at an environment that is not the active one."""
    fact = facts.get("python.executable")
    return fact.value if isinstance(fact.value, str) and fact.origin.startswith("--python") else None


def _candidates(wanted: Sequence[Pin], facts: FactSet, matrix: Matrix) -> Iterator[list[Pin]]:
    """Exact versions to try, the nearest release to the installed one first; a range that cannot be resolved is tried
    as its lower bound."""
    if len(wanted) == 1:
        name, specifier = wanted[0]
        for version in _versions(name, specifier, facts, matrix)[:_TRIES]:
            yield _with_companions([(name, f"=={version}")], facts, matrix)
        return
    pins = [(name, f"=={version}") for name, spec in wanted for version in _versions(name, spec, facts, matrix)[:1]]
    if len(pins) == len(wanted):
        yield _with_companions(pins, facts, matrix)


def _versions(name: str, specifier: str, facts: FactSet, matrix: Matrix) -> list[str]:
    if specifier.startswith("==") and "," not in specifier and "*" not in specifier:
        return [specifier[2:]]
    table = matrix.table("releases")
    released: list[str] = table.get("releases", {}).get(name, [])
    fitting = [version for version in released if satisfies(version, specifier)]
    if not fitting:
        bound = _BOUND.search(specifier)
        return [bound[1]] if bound else []
    installed = facts.value(f"pkg.{name}")
    if not isinstance(installed, str):
        return fitting[::-1]
    older = sum(1 for version in released if satisfies(version, f"<{_public(installed)}"))
    return sorted(fitting, key=lambda version: abs(released.index(version) - older))


def _public(version: str) -> str:
    return version.partition("+")[0]


def _with_companions(pins: list[Pin], facts: FactSet, matrix: Matrix) -> list[Pin]:
    """Add the torchvision and torchaudio that belong to a changed torch, when they are installed."""
    torch = next((specifier[2:] for name, specifier in pins if name == "torch"), None)
    if torch is None:
        return pins
    row = _row(matrix.table("torch-builds"), torch) or {}
    named = {name for name, _ in pins}
    return pins + [
        (name, f"=={row[name]}")
        for name in ("torchvision", "torchaudio")
        if isinstance(row.get(name), str) and name not in named and isinstance(facts.value(f"pkg.{name}"), str)
    ]


def _apply(pins: Sequence[Pin], facts: FactSet, matrix: Matrix) -> tuple[FactSet, str | None, str | None]:
    """The facts after installing the pins, the CUDA tag to keep, and why a table forbids it."""
    changed = facts.copy()
    tag: str | None = None
    for name, specifier in pins:
        version = specifier[2:]
        forbidden = _python_forbids(name, version, facts, matrix)
        if forbidden:
            return changed, None, forbidden
        if name == "torch":
            cuda, tag, forbidden = _cuda_build(version, facts, matrix)
            if forbidden:
                return changed, None, forbidden
            changed.drop("torch.")
            if cuda is not None:
                changed.add(Fact("torch.cuda", cuda, "the fix", "given"))
        changed.add(Fact(f"pkg.{name}", version, "the fix", "given"))
    return changed, tag, None


def _row(table: Mapping[str, Any], version: str) -> Mapping[str, Any] | None:
    for row in table.get("row", []):
        key = row["key"]
        if key == version or (key[:1] in "<>=!~" and satisfies(version, key)):
            found: Mapping[str, Any] = row
            return found
    return None


def _python_forbids(name: str, version: str, facts: FactSet, matrix: Matrix) -> str | None:
    python = facts.value("python.version")
    if not isinstance(python, str):
        return None
    specifiers: list[str] = []
    for entry in matrix.table("releases").get("requires_python", {}).get(name, []):
        if satisfies(version, entry["versions"]):
            specifiers.append(entry["python"])
    if name == "torch":
        row = _row(matrix.table("torch-builds"), version)
        specifiers += [row["python"]] if row and row.get("python") else []
    for specifier in specifiers:
        if not satisfies(python, specifier):
            return f"{name} {version} has no build for Python {python} ({specifier})"
    return None


def _cuda_build(version: str, facts: FactSet, matrix: Matrix) -> tuple[Known | Absent | None, str | None, str | None]:
    """CUDA of the build that would be installed, its wheel tag, and why there is none."""
    trial = facts.copy()
    derive(trial, matrix)
    current = trial.value("torch.cuda")
    row = _row(matrix.table("torch-builds"), version)
    if isinstance(current, Unknown) or row is None:
        return None, None, None
    if isinstance(current, Absent):
        # CPU builds exist for every release; ROCm builds are not in the table.
        return (ABSENT, "cpu", None) if isinstance(trial.value("torch.hip"), Absent) else (None, None, None)
    builds = [str(cuda) for cuda in row.get("cuda", [])]
    if current in builds:
        return current, _tag(str(current), row), None
    driver = trial.value("driver.max_cuda")
    ordered = sorted(builds, key=_numbers, reverse=True)
    for cuda in ordered:
        if isinstance(driver, str) and _numbers(cuda)[0] > _numbers(driver)[0]:
            continue
        return cuda, _tag(cuda, row), None
    return None, None, f"torch {version} has no build for CUDA {current}"


def _tag(cuda: str, row: Mapping[str, Any]) -> str | None:
    """None when PyPI's own build has that CUDA, so that no extra index is needed."""
    return None if row.get("pypi_cuda") == cuda else "cu" + cuda.replace(".", "")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))
