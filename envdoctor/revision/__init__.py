"""What changed between two snapshots of a model, as records of one shape; the Hub; pins. Rules judge, not this.

In: two revisions on the Hub, in its cache or in a folder (``hub/``). Out: changes by area. The other folders hold
the comparers (``comparer.py`` is their contract), and in ``parts/`` what they are made of. Imports ``remedy`` and
what is below it.
"""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "code.parts.loaded": "CodeSource parse",
        "code.parts.tree": "FileCode",
        "comparer": "AREAS Change Compared Revisions UNNAMED",
        "comparing": "COMPARERS Comparison attribute change_facts compare_snapshots effect_of files_of",
        "hub.local": "LocalSnapshot open_folder",
        "hub.online": "Access Commit HubSnapshot open_hub",
        "hub.opening": "Pair Step commits_between open_pair open_snapshot steps",
        "hub.pickle_reading": "COMPUTED_NAME Checkpoint Clock TOO_LONG described read_checkpoint",
        "hub.safetensors_header": "DTYPE_BITS HeaderError LARGEST_HEADER parse_header",
        "hub.snapshot": "FileEntry Pin PinError PINS PinState Snapshot SnapshotError Unread compare_with_pin find_pins "
        "limited_to pin_of pins_text read_pins",
        "hub.transport": "Transport TransportError",
        "settings.settings_files": "flatten",
        "template.chat_template": "special_tokens templates_in",
    },
)
