"""The command line: one module a command. Each parses, calls :mod:`envdoctor.app`, and renders."""

# No import but of what every interpreter has loaded when it starts: the path must be clean first.
import os
import sys


def _clean_path() -> None:
    """Take PYTHONPATH and the working directory off ``sys.path``: they may belong to the judged environment and hold a
    click.py. Keep the folder that holds envdoctor."""
    entries = [] if sys.flags.ignore_environment else os.environ.get("PYTHONPATH", "").split(os.pathsep)
    try:
        foreign = {os.path.abspath(entry) for entry in ("", *entries)}
    except OSError:  # the working directory is gone
        foreign = {entry for entry in entries if os.path.isabs(entry)}
        sys.path[:] = [entry for entry in sys.path if os.path.isabs(entry)]
    foreign.discard(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    sys.path[:] = [entry for entry in sys.path if entry and os.path.abspath(entry) not in foreign]


_clean_path()
