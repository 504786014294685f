"""Requirements of a run beside those of its packages: the rows of the table ``run-needs`` that hold for it."""

from collections.abc import Iterator, Mapping
from typing import Any

from envdoctor.facts.factset import FactSet
from envdoctor.judge.derivations.model import asked_of_frameworks, fits_requirement, needs_of_model
from envdoctor.matrix.matrix import Matrix
from envdoctor.system.message import Message
from envdoctor.versions.requirement import read_requirement


def others_asked(row: Mapping[str, Any], facts: FactSet) -> Iterator[str]:
    """Return the requirements of a row for serving engines and trainers that are installed or the recipe's."""
    return (line for line in row.get("others", ()) if _is_used(read_requirement(line).name, facts))


def _model_needs(facts: FactSet, matrix: Matrix) -> list[str]:
    """Return the requirements of the model itself, one line a package."""
    since = facts.text("model.registered_since")
    if facts.unknown("model.registered_since"):  # the first release for the family, if it is the same for all its types
        from envdoctor.matrix.released_wheels import transformers_types

        types, family = transformers_types(matrix), facts.value("model.family")
        kinds = next((row["types"] for row in matrix.rows("families", "family") if row["id"] == family), ())
        firsts = {types.since(kind) for kind in kinds}
        since = firsts.pop() if len(firsts) == 1 and not types.is_never(next(iter(kinds))) else None
    rows = needs_of_model(facts, matrix)
    lines = [line for row in rows for line in row["asks"] if "[" not in line]
    is_theirs = facts.value("model.run_by") != "trainer"
    if since is not None and is_theirs and not any(read_requirement(line).name == "transformers" for line in lines):
        lines.insert(0, f"transformers>={since}")
    used = [row["name"] for row in matrix.rows("framework-models", "framework") if _is_used(row["name"], facts)]
    lines += [line for line, _ in asked_of_frameworks(facts, matrix, used)]
    bounds: dict[str, list[str]] = {}
    for need in map(read_requirement, lines):
        bounds.setdefault(need.name, []).extend([need.specifiers] if need.specifiers else [])
    return [package + ",".join(texts) for package, texts in bounds.items()]


def lost_by_model(now: FactSet, after: FactSet, matrix: Matrix) -> Message | None:
    """Return a sentence with the package that a change would move out of the model's requirements; None without one."""
    for line in _model_needs(now, matrix):
        if fits_requirement(line, after) is False is not fits_requirement(line, now):
            text = "it would break a requirement: {} asks for another {}"
            return Message(text, now.value("model.name"), read_requirement(line).name)
    return None


def asked_by_model(facts: FactSet, matrix: Matrix) -> Message | None:
    """Return a sentence with the model's requirements and whether the environment meets them; None if unknown."""
    needs = _model_needs(facts, matrix)
    if not needs:
        return None
    there = {line: fits_requirement(line, facts) for line in needs}
    missing, unknown = ([line for line in needs if there[line] is state] for state in (False, None))
    texts = {
        (True, True): "{} asks for {}; not here: {}; not known here: {}",
        (True, False): "{} asks for {}; not here: {}",
        (False, True): "{} asks for {}; not known here: {}",
        (False, False): "{} asks for {}; all of it is here",
    }
    lists = [", ".join(lines) for lines in (needs, missing, unknown) if lines]
    return Message(texts[bool(missing), bool(unknown)], facts.value("model.name"), *lists)


def _is_used(framework: str, facts: FactSet) -> bool:
    return facts.text(f"pkg.{framework}") is not None or facts.value("recipe.framework") == framework
