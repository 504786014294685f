"""Facts: what is known of an environment, a machine, a model and a recipe, and where each piece comes from."""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "change": "given_only",
        "factset": "FactSet Kept",
        "installed": "Installed InstalledSet marker_values",
        "privacy": "public_facts",
        "registry": "FactSpec FactTypeError Registry RegistryError canonical_key parse_value strange_name unlisted",
        "values": "ABSENT Absent Fact Known NOT_GIVEN NOT_KNOWN Range Records Unknown Unlisted Value place_of plain "
        "restored spell written",
        "view": "View",
    },
)
