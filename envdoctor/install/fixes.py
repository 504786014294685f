"""Which of a rule's fixes is safe to offer: each is tried on the facts and judged again before it is shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from envdoctor.derive import derive
from envdoctor.facts.change import change
from envdoctor.facts.factset import FactSet
from envdoctor.facts.registry import FactTypeError, parse_value
from envdoctor.facts.values import Fact, spell
from envdoctor.install.builds import Build, python_forbids, torch_build, torch_build_for, torch_row
from envdoctor.install.commands import Pin, install_commands
from envdoctor.judge.finding import Finding, OfferedFix
from envdoctor.judge.judging import Judgement, errors_of, holds
from envdoctor.judge.messages import text_of
from envdoctor.knowledge.matrix import Matrix
from envdoctor.knowledge.rules import Rule
from envdoctor.versions.names import normalise
from envdoctor.versions.pep440 import NotASpecifier, nearest, satisfies

__all__ = ["offer_fixes", "with_fixes"]

_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*?)\s*((?:~=|==|!=|<=|>=|<|>).*)\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_BOUND = re.compile(r"(?:>=|==|~=)\s*(\d+(?:\.\d+)*)")
#: How many releases of a range are tried, nearest to the installed one first.
_TRIES = 6
#: How many builds of torch are judged before a fix that names CUDA versions is given up.
_BUILDS = 12
#: What a build of torch must fit: a fix that changes the build may leave no error that rests on one of these.
_FITS = frozenset(("driver.fits", "driver.version", "gpu.gap", "gpu.kernels", "torch.cuda"))


def with_fixes(judgement: Judgement, matrix: Matrix) -> Judgement:
    """The judgement with what to do about each finding: judged once for all records of a rule."""
    before = frozenset(finding.id for finding in judgement.findings)
    offered: dict[str, tuple[OfferedFix, ...]] = {}
    findings: list[Finding] = []
    for finding in judgement.findings:
        if finding.id not in offered:
            rule = matrix.find(finding.id)
            assert rule is not None
            offered[finding.id] = offer_fixes(rule, judgement.facts, matrix, before)
        findings.append(finding._replace(fixes=offered[finding.id]))
    return judgement._replace(findings=tuple(findings))


def offer_fixes(
    rule: Rule, facts: FactSet, matrix: Matrix, before: Iterable[str], *, alone: bool = False
) -> tuple[OfferedFix, ...]:
    """The fixes of a rule in their order; those that would not help or would break something carry ``withheld``.

    ``facts`` are derived ones; ``before`` are the ids of the findings that stand now. ``alone`` judges the changed
    facts by this rule and no other.
    """
    trial = _Trial(rule, facts, matrix, frozenset(before), alone)
    return tuple(trial.offer(fix) for fix in matrix.texts(rule)["fix"])


class _Trial(NamedTuple):
    """What changes are tried on, and how they are judged."""

    rule: Rule
    facts: FactSet
    matrix: Matrix
    before: frozenset[str]
    alone: bool

    def offer(self, fix: Mapping[str, Any]) -> OfferedFix:
        if fix["kind"] == "constraint":
            return self._constraint(fix)
        if fix["kind"] in ("set", "env"):
            return self._setting(fix)
        return _offered(fix, commands=(fix["command"],) if fix["kind"] == "command" else ())

    def objection(self, given: Iterable[Fact], *, fits: bool = False) -> str | None:
        """Why a change is not offered; with ``fits`` also that it leaves an error about what a build must fit."""
        changed = change(self.facts, given, self.matrix.registry)
        derive(changed, self.matrix)
        if holds(self.rule, changed, self.matrix):
            return "it would not be enough here"
        errors = {} if self.alone else errors_of(changed, self.matrix)
        for rule_id in errors if fits else ():
            rule = self.matrix.find(rule_id)
            if rule is not None and _FITS.intersection(rule.keys()):
                return f"it would leave {rule_id}: {errors[rule_id]}"
        new = [rule_id for rule_id in errors if rule_id not in self.before]
        return f"it would bring {new[0]}: {errors[new[0]]}" if new else None

    def _setting(self, fix: Mapping[str, Any]) -> OfferedFix:
        env = {name: _written(value) for name, value in fix["env"].items()}
        changes = fix["set"] if fix["kind"] == "set" else {f"env.{name}": value for name, value in env.items()}
        given: list[Fact] = []
        for key, raw in changes.items():
            spec = self.matrix.registry.find(key)
            try:
                if spec is not None:
                    given.append(Fact(key, parse_value(spec, raw), "the fix", "given"))
            except FactTypeError:
                return _offered(fix)  # a text for a person ("0.8 or lower") cannot be judged
        from shlex import quote

        commands = tuple(
            f"unset {name}" if value == "absent" else f"export {name}={quote(value)}"
            for name, value in env.items()
            if _VARIABLE.match(name)
        )
        return _offered(fix, commands=commands, withheld=self.objection(given))

    def _constraint(self, fix: Mapping[str, Any]) -> OfferedFix:
        parsed = [_REQUIREMENT.match(text) for text in fix["constraints"]]
        wanted = [(normalise(match[1]), match[2].replace(" ", "")) for match in parsed if match]
        if len(wanted) < len(parsed):
            return _offered(fix, withheld="its constraints cannot be read")
        if fix.get("cuda"):
            return self._other_build(fix, wanted[0])
        objection: str | None = None
        for pins in self._candidates(wanted):
            given, tag, forbidden = self._apply(pins)
            reason = forbidden or self.objection(given)
            if reason is None:
                return _offered(fix, commands=self._commands(pins, tag))
            objection = objection or reason
        return _offered(fix, withheld=objection or "no release that satisfies it is known")

    def _other_build(self, fix: Mapping[str, Any], wanted: Pin) -> OfferedFix:
        """The release of torch nearest to the installed one that has a build for one of the CUDA versions of ``fix``
        (in their order) which this Python, driver and every GPU can use, with what belongs to it."""
        objection: str | None = None
        builds = [(version, cuda) for version in self._versions(*wanted) for cuda in fix["cuda"]]
        tried = 0
        for version, cuda in builds:
            build = torch_build_for(version, cuda, self.facts, self.matrix)
            pins = self._with_companions([("torch", f"=={version}")])
            given, _, forbidden = self._apply(pins, build)
            if forbidden is None:
                tried += 1
                forbidden = self.objection(given, fits=True)
                objection = None  # what keeps a build from helping says more than that another does not exist
            if forbidden is None:
                # conda chooses the CUDA of a package by itself.
                commands = self._commands(pins, build.tag)
                return _offered(fix, commands=tuple(line for line in commands if not line.startswith("conda ")))
            objection = objection or forbidden
            if tried >= _BUILDS:
                break
        return _offered(fix, withheld=objection or "no build that satisfies it is known")

    def _commands(self, pins: Sequence[Pin], tag: str | None) -> tuple[str, ...]:
        installer = self.facts.value("environment.installer")
        path = self.facts.get("environment.path")
        folder = path.value if isinstance(path.value, str) and path.source == "environment" else None
        return install_commands(
            pins,
            installer=str(installer) if isinstance(installer, str) else "pip",
            interpreter=self._interpreter(),
            folder=folder,
            target=self.facts.value("environment.kind") == "path",
            cuda_tag=tag,
            packages=self.matrix.rows("packages", "package"),
        )

    def _interpreter(self) -> str | None:
        """The interpreter to name: for an environment of this machine that is not the active one, which a bare ``pip``
        installs into."""
        fact = self.facts.get("python.executable")
        if not isinstance(fact.value, str) or fact.source != "environment":
            return None
        active = [self.facts.value(f"env.{name}") for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
        return None if self.facts.value("environment.path") in active else fact.value

    def _candidates(self, wanted: Sequence[Pin]) -> Iterator[list[Pin]]:
        """Exact versions to try, the nearest release to the installed one first; a range that cannot be resolved is
        tried as its lower bound."""
        if len(wanted) == 1:
            name, specifier = wanted[0]
            fitting = self._versions(name, specifier)
            # When none of the nearest will do, one from the other end of the range may.
            for version in dict.fromkeys([*fitting[:_TRIES], *fitting[-1:]]):
                yield self._with_companions([(name, f"=={version}")])
            return
        ranges = [self._versions(name, spec) for name, spec in wanted]
        if all(ranges):
            for versions in product(*(dict.fromkeys((fitting[0], fitting[-1])) for fitting in ranges)):
                pins = [(name, f"=={version}") for (name, _), version in zip(wanted, versions, strict=True)]
                yield self._with_companions(pins)

    def _versions(self, name: str, specifier: str) -> list[str]:
        if specifier.startswith("==") and "," not in specifier and "*" not in specifier:
            return [specifier[2:]]
        released: list[str] = self.matrix.part("releases", "releases").get(name, [])
        try:
            fitting = [version for version in released if satisfies(version, specifier)]
        except NotASpecifier:
            return []
        if not fitting:
            bound = _BOUND.search(specifier)
            return [bound[1]] if bound else []
        installed = self.facts.value(f"pkg.{name}")
        return nearest(fitting, installed, released) if isinstance(installed, str) else fitting[::-1]

    def _with_companions(self, pins: list[Pin]) -> list[Pin]:
        """Add the torchvision and torchaudio that belong to a changed torch, when they are installed."""
        torch = next((specifier[2:] for name, specifier in pins if name == "torch"), None)
        if torch is None:
            return pins
        row = torch_row(torch, self.matrix) or {}
        named = {name for name, _ in pins}
        companions = [entry["name"] for entry in self.matrix.rows("torch-companions", "package")]
        return pins + [
            (name, f"=={row[name]}")
            for name in companions
            if isinstance(row.get(name), str) and name not in named and isinstance(self.facts.value(f"pkg.{name}"), str)
        ]

    def _apply(self, pins: Sequence[Pin], build: Build | None = None) -> tuple[list[Fact], str | None, str | None]:
        """The facts that installing the pins would change, the CUDA tag to keep, and why a table forbids it. ``build``
        is the one of torch; None keeps the CUDA that is installed, where that is possible."""
        given: list[Fact] = []
        tag: str | None = None
        for name, specifier in pins:
            version = specifier[2:]
            forbidden = python_forbids(name, version, self.facts, self.matrix)
            if forbidden is None and name == "torch":
                build = build or torch_build(version, self.facts, self.matrix)
                forbidden, tag = build.forbidden, build.tag
                if build.cuda is not None:
                    given.append(Fact("torch.cuda", build.cuda, "the fix", "given"))
            if forbidden:
                return given, None, forbidden
            given.append(Fact(f"pkg.{name}", version, "the fix", "given"))
        return given, tag, None


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
