"""Packages that are released together with torch, and the torch that their own metadata asks for."""

from __future__ import annotations

from collections.abc import Sequence

from envdoctor.facts.values import ABSENT, Fact, Records, Unknown, Value
from envdoctor.observe.environment.metadata_directory import Distribution

__all__ = ["companion_fact"]


def companion_fact(distributions: Sequence[Distribution], versions: Sequence[Fact], incomplete: str | None) -> Fact:
    """The fact ``torch_companion`` as far as the environment tells it: package, version and its pin of torch.

    Every installed ``torch…`` is listed; which of them are companions is for the table torch-companions to say.
    ``versions`` are the ``pkg.*`` facts, and of a package that is installed twice the first counts.
    """
    chosen: dict[str, Distribution] = {}
    for item in distributions:
        if item.name.startswith("torch") and item.name != "torch":
            chosen.setdefault(item.name, item)
    if not chosen:
        return Fact("torch_companion", Records((), incomplete), "installed packages", "environment")
    known = {fact.key[4:]: fact.value for fact in versions if fact.key[4:] in chosen}
    items: list[dict[str, Value]] = [
        {"package": name, "version": known.get(name, item.version), "made_for": _pin(item)}
        for name, item in chosen.items()
    ]
    return Fact("torch_companion", Records(tuple(items), incomplete), "installed packages", "environment")


def _pin(item: Distribution) -> Value:
    """The specifiers of the torch that it requires; absent when it asks for none, or for any."""
    from envdoctor.observe.environment.requirement import NotARequirement, read_requirement

    if item.kind == "conda":
        return Unknown("conda's metadata is not read for it")
    for line in item.requires:
        if not line.startswith("torch"):
            continue
        try:
            wanted = read_requirement(line)
        except NotARequirement as error:
            return Unknown(f"a requirement of {item.name} cannot be read: {error}")
        if wanted.name == "torch":
            return wanted.specifiers.replace(" ", "") or ABSENT
    return Unknown(item.requires_unknown) if item.requires_unknown else ABSENT
