"""Facts: what is known of an environment, a machine, a model and a recipe, and where each piece comes from.

In: values with their origins. Out: sets of facts, typed views of them, and ``change()``, the one place that drops
what no longer holds. Imports ``versions`` and what is below it.
"""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "factset": "FactSet given_only Installed InstalledSet Kept marker_values public_facts View",
        "registry": "FactSpec FactTypeError Registry canonical_key parse_value strange_name unlisted",
        "values": "ABSENT Absent Fact Known NOT_GIVEN NOT_KNOWN Origin Range Records Unknown Unlisted Value plain "
        "restored spell written",
    },
)
