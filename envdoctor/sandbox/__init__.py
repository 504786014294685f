"""Bounded children: work on hostile input happens in a process that may die."""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "asking": "Limits Problem ask ask_program",
        "child": "minimal_environment run_child",
        "process_tree": "processors",
        "target": "Answer ENDINGS NO_TORCH PAYLOAD Place Task run_in_target scratch_folder",
        "templates": "Refusal template_environment",
    },
)
