"""The model's family, from its type, architectures or name, and what is known of a repository by its name alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from envdoctor.derive.running import Derived
from envdoctor.facts.values import ABSENT, Unknown, Value
from envdoctor.knowledge.matrix import Matrix

INPUTS = ("model.repo", "model.path")
OUTPUTS = ("model.family", "model.type", "model.remote_code", "model.dtype", "model.quantization", "model.num_experts")


def compute(value: Callable[[str], Value], matrix: Matrix) -> Mapping[str, Derived]:
    """``model.family``; and facts that families.toml records of a repository whose files were not read."""
    repo, path, kind = value("model.repo"), value("model.path"), value("model.type")
    if all(isinstance(item, Unknown) for item in (repo, path, kind, value("model.architectures"))):
        return {}
    families = matrix.table("families")
    names = _names(repo, path, families.get("organisations", {}))
    family = _family(names, kind, value("model.architectures"), families.get("family", []))
    found: dict[str, Derived] = {}
    if family is None:
        if isinstance(kind, Unknown):
            shown = repo if isinstance(repo, str) else path
            reason = Unknown(f"the family of {shown} is not known by name, and its config.json was not read")
            return {"model.family": Derived(reason, "")}
        return {"model.family": Derived(ABSENT, f"families.toml has no family for model type {kind}")}
    entry, because = family
    found["model.family"] = Derived(entry["id"], f"families.toml: {because}")
    for known in entry.get("known", []):
        if _matches(names, known.get("repos", [])):
            for key, fact in known.get("facts", {}).items():
                found[key] = Derived(ABSENT if fact == "absent" else fact, f"families.toml: {because}")
            break
    return found


def _names(repo: Value, path: Value, organisations: Mapping[str, str]) -> list[str]:
    """The spellings to match: the repository with its organisation's present name, and a folder's bare name."""
    names: list[str] = []
    if isinstance(repo, str):
        organisation, slash, name = repo.rpartition("/")
        renamed = {old.lower(): new for old, new in organisations.items()}.get(organisation.lower(), organisation)
        names.append(f"{renamed}{slash}{name}".lower())
    elif isinstance(path, str):
        names.append("*/" + path.replace("\\", "/").rstrip("/").rpartition("/")[2].lower())
    return names


def _matches(names: Iterable[str], globs: Iterable[str]) -> bool:
    for glob in globs:
        pattern = glob.lower()
        for name in names:
            # "*/glm-4-9b" is a folder: its organisation is not known, so only the last part is compared.
            if name.startswith("*/"):
                if fnmatchcase(name[2:], pattern.rpartition("/")[2]):
                    return True
            elif fnmatchcase(name, pattern):
                return True
    return False


def _family(
    names: list[str], kind: Value, architectures: Value, families: list[dict[str, Any]]
) -> tuple[dict[str, Any], str] | None:
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
    types = set(entry.get("types", [])) | {known.get("facts", {}).get("model.type") for known in entry.get("known", [])}
    types.discard(None)
    return not types or kind in types
