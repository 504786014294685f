"""The model's family, from its type, architectures or name, and what is known of a repository by its name alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from envdoctor.derive.running import Derived
from envdoctor.facts.registry import parse_value
from envdoctor.facts.values import ABSENT, Unknown, Value
from envdoctor.knowledge.conditions import glob_fits
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("model.repo", "model.path")
OUTPUTS = (
    "model.family",
    "model.type",
    "model.architectures",
    "model.remote_code",
    "model.dtype",
    "model.quantization",
    "model.hidden_size",
    "model.num_layers",
    "model.head_dim",
    "model.num_attention_heads",
    "model.num_key_value_heads",
    "model.num_experts",
    "model.vocab_size",
)

#: What a copy of a model has in common with it.
_OF_A_COPY = {"model.type", "model.architectures"}


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``model.family``; and facts that families.toml records of a repository whose files were not read."""
    repo, path, kind = value("model.repo"), value("model.path"), value("model.type")
    if all(isinstance(item, Unknown) for item in (repo, path, kind, value("model.architectures"))):
        return {}
    names = _names(repo, path, matrix)
    entries = matrix.rows("families", "family")
    family = _family(names, kind, value("model.architectures"), entries)
    copy = family is None and isinstance(repo, str)
    if copy:
        names = _copied(str(repo), matrix.part("families", "copies"))
        family = _family(names, kind, value("model.architectures"), entries)
    if family is None:
        return {"model.family": _no_family(kind, repo if isinstance(repo, str) else path, entries)}
    entry, because = family
    origin = f"families.toml: {because}"
    found = {"model.family": Derived(entry["id"], origin)}
    if isinstance(repo, str):  # a folder's name says too little of what is in it
        for known in entry.get("known", []):
            if _matches(names, known.get("repos", [])):
                facts = known.get("facts", {})
                kept = {key: facts[key] for key in _OF_A_COPY & facts.keys()} if copy else facts
                found.update(_known(kept, matrix, origin))
                break
    return found


def _known(facts: Mapping[str, Any], matrix: Matrix, origin: str) -> dict[str, Derived]:
    found: dict[str, Derived] = {}
    for key, raw in facts.items():
        spec = matrix.registry.find(key)
        if spec is not None:
            found[key] = Derived(parse_value(spec, raw), origin)
    return found


def _no_family(kind: Value, called: Value, entries: Iterable[Mapping[str, Any]]) -> Derived:
    if isinstance(kind, Unknown):
        return Derived(Unknown(f"the family of {called} is not known by name, and its config.json was not read"), "")
    sharing = [entry["id"] for entry in entries if kind in entry.get("shared_types", [])]
    if sharing:
        return Derived(Unknown(f"{', '.join(sharing)} all have model type {kind}: give the repository's name"), "")
    return Derived(ABSENT, f"families.toml has no family for model type {kind}")


def _names(repo: Value, path: Value, matrix: Matrix) -> list[str]:
    """The spellings to match: the repository with its organisation's present name, and a folder's bare name."""
    organisations: Mapping[str, str] = matrix.part("families", "organisations")
    names: list[str] = []
    if isinstance(repo, str):
        organisation, slash, name = repo.rpartition("/")
        renamed = {old.lower(): new for old, new in organisations.items()}.get(organisation.lower(), organisation)
        bare = () if slash else matrix.part("families", "bare").get("organisations", ())
        names += [f"{renamed}{slash}{name}".lower(), *(f"{one}/{name}".lower() for one in bare)]
    elif isinstance(path, str):
        names.append("*/" + path.replace("\\", "/").rstrip("/").rpartition("/")[2].lower())
    return names


def _copied(repo: str, copies: Mapping[str, Sequence[str]]) -> list[str]:
    """The spellings of the model that a repository is a copy of: NAME, or ORG_NAME as some write it."""
    organisation, _, name = repo.lower().rpartition("/")
    if organisation not in map(str.lower, copies.get("organisations", ())):
        return []
    name = name[: min((name.find(ending) for ending in copies["endings"] if ending in name), default=None)]
    return ["*/" + name, name.replace("_", "/", 1)]


def _matches(names: Iterable[str], globs: Iterable[str]) -> bool:
    for glob in globs:
        pattern = glob.lower()
        for name in names:
            # "*/glm-4-9b" is a folder: its organisation is not known, so only the last part is compared, unless that is
            # no more than a star.
            if name.startswith("*/"):
                last = pattern.rpartition("/")[2]
                if last.strip("*?") and glob_fits(name[2:], last):
                    return True
            elif glob_fits(name, pattern):
                return True
    return False


def _family(
    names: list[str], kind: Value, architectures: Value, families: Sequence[Mapping[str, Any]]
) -> tuple[Mapping[str, Any], str] | None:
    known_kind = kind if isinstance(kind, str) else None
    known_architectures = architectures if isinstance(architectures, tuple) else ()
    for entry in families:
        if _matches(names, entry.get("repos", [])) and not _matches(names, entry.get("except", [])):
            if known_kind is not None and not _admits(entry, known_kind):
                continue  # a folder named like the model but holding another one
            return entry, f"repository name {names[0].removeprefix('*/')}"
    for entry in families:
        if known_kind is not None and known_kind in entry.get("types", []):
            return entry, f"model type {known_kind}"
    for entry in families:
        if set(known_architectures) & set(entry.get("architectures", [])):
            return entry, f"architecture {known_architectures[0]}"
    return None


def _admits(entry: Mapping[str, Any], kind: str) -> bool:
    """Whether files with this model_type can be of the family at all."""
    types = {*entry.get("types", []), *entry.get("shared_types", [])}
    types |= {known.get("facts", {}).get("model.type") for known in entry.get("known", [])}
    types.discard(None)
    return not types or kind in types
