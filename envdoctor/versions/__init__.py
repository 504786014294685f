"""Versions: PEP 440, dotted numbers, ranges, requirements, markers, names. The only such logic in the house."""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "dotted": "compare rank same_start",
        "joining": "join_specifiers",
        "marker": "NotAMarker holds",
        "names": "normalise valid_name",
        "pep440": "Answer NO NotASpecifier OPEN Order YES base_release is_named_by is_version order "
        "release_of same_release satisfies",
        "releases": "EVERY Range Releases contains intersect parse_ranges plain_release spell_ranges",
        "requirement": "NotARequirement Requirement read_requirement",
        "wheel_tags": "TARGET_KEYS WheelTarget wheel_target",
    },
)
