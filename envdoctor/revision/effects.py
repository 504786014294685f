"""Which kinds of changes have no effect on a run, and why: the table revision-kinds. Rules judge the other kinds."""

from collections.abc import Mapping

from envdoctor.knowledge.matrix import Matrix


def effect_of(area: str, kind: str, matrix: Matrix) -> Mapping[str, str] | None:
    """Return the sentence, by language, that says why a kind of change of an area has no effect.

    Return None where no row says so: then a finding tells the change, or it was not judged.
    """
    rows = matrix.rows("revision-kinds", "kind")
    return next((row["effect"] for row in rows if area in row["areas"] and kind in row["kinds"]), None)
