"""What people paste when something failed: a message, or a whole traceback, read into what was asked of whom."""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "failure": "Failure failure_of",
        "pasted": "numbered visible",
        "reading": "Reading imported_in module_of read_error",
    },
)
