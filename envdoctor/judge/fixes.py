"""Which of a rule's fixes is safe to offer: each is tried on the facts and judged again before it is shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envdoctor.derive import derive
from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import FactTypeError, normalise, parse_value
from envdoctor.facts.values import Fact, Unknown, Value, spell
from envdoctor.judge.builds import Build, python_forbids, torch_build, torch_build_for, torch_row
from envdoctor.judge.commands import Pin, install_commands
from envdoctor.judge.compare import satisfies
from envdoctor.judge.finding import OfferedFix
from envdoctor.judge.messages import text_of
from envdoctor.knowledge.matrix import Matrix

__all__ = ["Judged", "Verdict", "offer_fixes"]

_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*?)\s*((?:~=|==|!=|<=|>=|<|>).*)\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_BOUND = re.compile(r"(?:>=|==|~=)\s*(\d+(?:\.\d+)*)")
#: How many releases of a range are tried, nearest to the installed one first.
_TRIES = 6
#: How many builds of torch are judged before a fix that names CUDA versions is given up.
_BUILDS = 12
#: What a build of torch must fit: a fix that changes the build may leave no error that rests on one of these.
_FITS = frozenset(("driver.fits", "driver.version", "gpu.gap", "gpu.kernels", "torch.cuda"))


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
        set={key: _written(value) for key, value in fix["set"].items()},
        env={key: _written(value) for key, value in fix["env"].items()},
        commands=() if withheld else commands,
        withheld=withheld,
    )


def _written(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return spell(value) if isinstance(value, (bool, float)) else str(value)


def _change(
    fix: Mapping[str, Any], facts: FactSet, matrix: Matrix, before: Mapping[str, str], judged: Judged
) -> OfferedFix:
    changed = facts.copy()
    env = {name: _written(value) for name, value in fix["env"].items()}
    changes = fix["set"] if fix["kind"] == "set" else {f"env.{name}": value for name, value in env.items()}
    for key, raw in changes.items():
        spec = matrix.registry.find(key)
        try:
            value: Value = parse_value(spec, raw) if spec else Unknown("not registered")
        except FactTypeError:
            return _offered(fix)  # a text for a person ("0.8 or lower") cannot be judged
        changed.add(Fact(key, value, "the fix", "given"))
    from shlex import quote

    commands = tuple(
        f"unset {name}" if value == "absent" else f"export {name}={quote(value)}"
        for name, value in env.items()
        if _VARIABLE.match(name)
    )
    return _offered(fix, commands=commands, withheld=_objection(changed, matrix, before, judged))


def _objection(
    changed: FactSet, matrix: Matrix, before: Mapping[str, str], judged: Judged, *, fits: bool = False
) -> str | None:
    """Why the change is not offered; with ``fits`` also that it leaves an error about what a build must fit."""
    derive(changed, matrix)
    verdict = judged(changed)
    if verdict.still:
        return "it would not be enough here"
    for rule_id in verdict.errors if fits else ():
        rule = matrix.find(rule_id)
        if rule is not None and _FITS.intersection(rule.keys()):
            return f"it would leave {rule_id}: {verdict.errors[rule_id]}"
    new = [rule_id for rule_id in verdict.errors if rule_id not in before]
    return f"it would bring {new[0]}: {verdict.errors[new[0]]}" if new else None


def _constraint(
    fix: Mapping[str, Any], facts: FactSet, matrix: Matrix, before: Mapping[str, str], judged: Judged
) -> OfferedFix:
    parsed = [_REQUIREMENT.match(text) for text in fix["constraints"]]
    wanted = [(normalise(match[1]), match[2].replace(" ", "")) for match in parsed if match]
    if len(wanted) < len(parsed):
        return _offered(fix, withheld="its constraints cannot be read")
    if fix.get("cuda"):
        return _other_build(fix, wanted[0], _Trial(facts, matrix, before, judged))
    objection: str | None = None
    for pins in _candidates(wanted, facts, matrix):
        changed, tag, forbidden = _apply(pins, facts, matrix)
        reason = forbidden or _objection(changed, matrix, before, judged)
        if reason is None:
            return _offered(fix, commands=_commands(pins, tag, facts, matrix))
        objection = objection or reason
    return _offered(fix, withheld=objection or "no release that satisfies it is known")


class _Trial(NamedTuple):
    """What a change is tried on, and how it is judged."""

    facts: FactSet
    matrix: Matrix
    before: Mapping[str, str]
    judged: Judged


def _other_build(fix: Mapping[str, Any], wanted: Pin, trial: _Trial) -> OfferedFix:
    """The release of torch nearest to the installed one that has a build for one of the CUDA versions of ``fix`` (in
    their order) which this Python, driver and every GPU can use, with what belongs to it."""
    facts, matrix, before, judged = trial
    objection: str | None = None
    builds = [(version, cuda) for version in _versions(*wanted, facts, matrix) for cuda in fix["cuda"]]
    tried = 0
    for version, cuda in builds:
        build = torch_build_for(version, cuda, facts, matrix)
        pins = _with_companions([("torch", f"=={version}")], facts, matrix)
        changed, _, forbidden = _apply(pins, facts, matrix, build)
        if forbidden is None:
            tried += 1
            forbidden = _objection(changed, matrix, before, judged, fits=True)
            objection = None  # what keeps a build from helping says more than that another does not exist
        if forbidden is None:
            commands = _commands(pins, build.tag, facts, matrix)
            # conda chooses the CUDA of a package by itself.
            return _offered(fix, commands=tuple(line for line in commands if not line.startswith("conda ")))
        objection = objection or forbidden
        if tried >= _BUILDS:
            break
    return _offered(fix, withheld=objection or "no build that satisfies it is known")


def _commands(pins: Sequence[Pin], tag: str | None, facts: FactSet, matrix: Matrix) -> tuple[str, ...]:
    judged_now = facts.copy()
    derive(judged_now, matrix)
    installer = judged_now.value("environment.installer")
    path = facts.get("environment.path")
    folder = path.value if isinstance(path.value, str) and path.source == "environment" else None
    return install_commands(
        pins,
        installer=str(installer) if isinstance(installer, str) else "pip",
        interpreter=_interpreter(facts),
        folder=folder,
        target=facts.value("environment.kind") == "path",
        cuda_tag=tag,
        packages=matrix.table("packages"),
    )


def _interpreter(facts: FactSet) -> str | None:
    """The interpreter to name: for an environment of this machine that is not the active one, which a bare ``pip``
    installs into."""
    fact = facts.get("python.executable")
    if not isinstance(fact.value, str) or fact.source != "environment":
        return None
    active = [facts.value(f"env.{name}") for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    return None if facts.value("environment.path") in active else fact.value


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
    try:
        fitting = [version for version in released if satisfies(version, specifier)]
    except ValueError:  # packaging's InvalidSpecifier
        return []
    if not fitting:
        bound = _BOUND.search(specifier)
        return [bound[1]] if bound else []
    installed = facts.value(f"pkg.{name}")
    if not isinstance(installed, str):
        return fitting[::-1]
    from packaging.version import InvalidVersion, Version

    try:
        older = sum(1 for version in released if Version(version) < Version(installed.partition("+")[0]))
    except InvalidVersion:
        return fitting[::-1]
    return sorted(fitting, key=lambda version: abs(released.index(version) - older))


def _with_companions(pins: list[Pin], facts: FactSet, matrix: Matrix) -> list[Pin]:
    """Add the torchvision and torchaudio that belong to a changed torch, when they are installed."""
    torch = next((specifier[2:] for name, specifier in pins if name == "torch"), None)
    if torch is None:
        return pins
    row = torch_row(torch, matrix) or {}
    named = {name for name, _ in pins}
    return pins + [
        (name, f"=={row[name]}")
        for name in ("torchvision", "torchaudio")
        if isinstance(row.get(name), str) and name not in named and isinstance(facts.value(f"pkg.{name}"), str)
    ]


def _apply(
    pins: Sequence[Pin], facts: FactSet, matrix: Matrix, build: Build | None = None
) -> tuple[FactSet, str | None, str | None]:
    """The facts after installing the pins, the CUDA tag to keep, and why a table forbids it. ``build`` is the one of
    torch; None keeps the CUDA that is installed, where that is possible."""
    changed = facts.copy()
    tag: str | None = None
    for name, specifier in pins:
        version = specifier[2:]
        forbidden = python_forbids(name, version, facts, matrix)
        if forbidden:
            return changed, None, forbidden
        if name == "torch":
            build = build or torch_build(version, facts, matrix)
            if build.forbidden:
                return changed, None, build.forbidden
            tag = build.tag
            changed.drop("torch.")
            if build.cuda is not None:
                changed.add(Fact("torch.cuda", build.cuda, "the fix", "given"))
        changed.add(Fact(f"pkg.{name}", version, "the fix", "given"))
    return changed, tag, None
