"""What people paste when something failed: a message, or a whole traceback, read into what was asked of whom."""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "reading": "Failure Reading failure_of imported_in module_of numbered read_error visible",
    },
)
