"""Snapshots of model repositories: on the Hub, in the local cache, or in a folder; and how to read them cheaply."""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "commits": "Commit Step commits_between steps",
        "local": "LocalSnapshot open_folder",
        "online": "Access HubSnapshot open_hub",
        "opening": "Pair open_pair open_snapshot",
        "pickle_reading": "COMPUTED_NAME Checkpoint Clock TOO_LONG described read_checkpoint",
        "pins": "Compared PINS Pin PinError compare_with_pin find_pins pin_of pins_text read_pins",
        "safetensors_header": "DTYPE_BITS HeaderError LARGEST_HEADER parse_header",
        "snapshot": "FileEntry Snapshot SnapshotError Unread limited_to",
        "transport": "Transport TransportError",
    },
)
