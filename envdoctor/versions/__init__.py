"""Versions: PEP 440, dotted numbers, ranges, requirements, markers, names. The only such logic in the house.

In: versions, specifiers, markers and names as texts. Out: yes, no or could not tell; ``Releases``, the one set of
releases. Imports ``system``.
"""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "pep440": "base_release compare is_named_by is_version join_specifiers NO NotASpecifier OPEN Order order rank "
        "release_of same_release same_start satisfies VersionAnswer YES",
        "releases": "EVERY Range Releases contains intersect parse_ranges spell_ranges",
        "requirement": "holds normalise NotAMarker NotARequirement read_requirement Requirement valid_name",
        "wheel_tags": "TARGET_KEYS WheelTarget wheel_target",
    },
)
