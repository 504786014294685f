"""The table of moved names against the ledger, wherever the ledger has read the names of the package."""

from collections.abc import Iterator

from envdoctor.facts import Unknown
from envdoctor.matrix import Matrix, Released
from envdoctor.versions import contains, parse_ranges, release_of


def offered(released: Released, place: str, version: str) -> bool | Unknown:
    module, _, name = place.partition(":")
    return released.offers(module, name, version) if name else released.exists(module, version)


def apart(matrix: Matrix) -> Iterator[str]:
    """Where a row and what was read of a release say different things."""
    for row in matrix.rows("moved-names", "name"):
        released = matrix.ledger.package(row["package"])
        if released is None or not released.by_names or not any(one.read for one in released.releases):
            continue
        ranges = parse_ranges(row["releases"])
        for place in row["old"]:
            for release in released.releases:
                there = offered(released, place, release.version) if release.read else Unknown("not read")
                said = contains(ranges, release_of(release.version))
                if not isinstance(there, Unknown) and there is not said:
                    yield f"{place}: {row['releases']}, but {release.version} {'has' if there else 'lacks'} it"


def places(matrix: Matrix) -> Iterator[str]:
    """New places that the newest release of their package lacks, though no releases are told."""
    for row in matrix.rows("moved-names", "name"):
        released = matrix.ledger.package(row.get("new_package", row["package"]))
        if "new" not in row or "new_releases" in row or released is None or not released.by_names:
            continue
        read = [one.version for one in released.releases if one.read]
        if read and offered(released, row["new"], read[-1]) is False:
            yield f"{row['old'][0]}: {row['new']} is not in {released.name} {read[-1]}"


def test_rows_say_what_released_files_say(matrix):
    assert list(apart(matrix)) == []


def test_new_places_are_there(matrix):
    assert list(places(matrix)) == []


def test_every_row_says_what_to_do_or_since_when(matrix):
    """A row without a new place is about a name that came later, or that nothing replaces."""
    for part in ("name", "keyword", "member"):
        for row in matrix.rows("moved-names", part):
            assert row["old"] and parse_ranges(row["releases"])
            assert "new_package" not in row or "new" in row
