"""The package whose code asked: which of its releases ask so, and which fit what is installed beside it."""

from __future__ import annotations

from collections.abc import Iterable

from envdoctor.answers.answer import Asker, Home
from envdoctor.answers.homes import allows, usable_releases
from envdoctor.answers.situation import Situation
from envdoctor.facts.values import Unknown
from envdoctor.knowledge.ledger import Released
from envdoctor.tracebacks.reading import Reading
from envdoctor.versions.releases import Releases

#: Releases of the asker that are tried, and those of them that are named.
_TRIES, _NAMED = 12, 3
#: Frames in these only pass on what a lazy package was asked for.
_PASSING = ("__getattr__", "_get_module", "import_module", "_handle_fromlist")


def asking_module(situation: Situation, reading: Reading) -> tuple[str, str, bool]:
    """The package of the ledger whose code failed, its module, and whether that is certain: by the last frame of the
    traceback that is not one of Python's own or of a lazy package's machinery, else by what the user's line imports.
    Empty for code of the user's own, and when the text does not say."""
    for frame in reversed(reading.frames):
        if "<frozen" in frame.path or "importlib" in frame.path or frame.function in _PASSING:
            continue
        package = situation.ledger.owner(frame.module) if frame.module else None
        return (package, frame.module, True) if package else ("", "", True)
    for module in reversed(reading.statements):
        package = situation.ledger.owner(module)
        if package:
            return package, module, False
    return "", "", False


def asker_of(situation: Situation, package: str, module: str, home: Home, asked: str) -> Asker:
    """What is known of the asker about ``asked`` (``transformers:HybridCache``) of the package of ``home``."""
    version = situation.version(package)
    released = situation.by_names(package)
    if released is None:
        return Asker(package, module, version)
    taking = _asking(situation, released, asked)
    if not taking.yes:
        return Asker(package, module, version)
    beside = f"{home.package} {home.installed}" if home.installed else ""
    without = [one for one in usable_releases(situation, package, ~taking) if one != version]
    subjects = {subject for subject, *_ in released.beginning("takes", f"{asked} ")} | set(released.modules)
    if home.installed and home.there is False:
        fitting = (one for one in without[:_TRIES] if _fits(situation, released, one, home, subjects))
        fits = tuple(one for one, _ in zip(fitting, range(_NAMED), strict=False))
    else:
        fits = tuple(without[:_NAMED])
    return Asker(package, module, version, taking.specifier, fits, beside)


def _asking(situation: Situation, released: Released, asked: str) -> Releases:
    """The releases that take it, by any of their public names, where the condition they put is not known to fail."""
    found, read = released.beginning("takes", f"{asked} "), released.read
    spans = [(since, until or read[-1]) for _, item, since, until in found if _counts(situation, item)]
    return Releases.between(read, [(read.index(since), read.index(until)) for since, until in spans])


def _counts(situation: Situation, item: str) -> bool:
    """Whether a line of [takes] counts here: ``transformers:X @peft.y if transformers>=4.45``."""
    _, _, condition = item.partition(" if ")
    return not condition or situation.meets(condition) is not False


def _fits(situation: Situation, released: Released, version: str, home: Home, subjects: Iterable[str]) -> bool:
    """Whether what a release of the asker takes when it is imported is all in the installed release beside it, and its
    own requirement of that is met."""
    beside, installed = home.package, home.installed
    other = situation.ledger.package(beside)
    if other is None or not _allowed(released, version, beside, installed):
        return False
    for subject in subjects:
        items = released.items("takes", subject, version)
        for item in () if isinstance(items, Unknown) else items:
            place = item.partition(" @")[0]
            module, _, name = place.partition(":")
            if situation.ledger.owner(module) != beside or not _counts(situation, item):
                continue
            there = other.offers(module, name, installed) if name else other.exists(module, installed)
            if there is False:
                return False
    return True


def _allowed(released: Released, version: str, name: str, installed: str) -> bool:
    wanted = (one.specifiers for one in released.requires(version) if one.name == name and not one.marker)
    return all(allows(specifiers, installed) for specifiers in wanted)
