"""What changed between two snapshots, as records of one shape. Nothing here judges: rules do.

Each folder is a room with one or more comparers (``comparer.py`` is their contract): the modules that stand directly in
it. What they are made of lies in its ``parts/``.
"""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "code.parts.loaded": "Source parse",
        "code.parts.tree": "FileCode",
        "comparer": "AREAS Change Compared Revisions Values",
        "comparing": "COMPARERS Comparison attribute change_facts compare_snapshots effect_of files_of",
        "settings.settings_files": "flatten",
        "template.parts.settings": "special_tokens templates_in",
    },
)
