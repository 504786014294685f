"""envdoctor: the environment compatibility doctor for LLM fine-tuning.

The public Python API is in :mod:`envdoctor.app`; ``check``, ``diff_revision`` and the others are also reachable here,
and are imported only when they are used. This file imports nothing: ``python -m envdoctor`` reads it while the working
directory is still on the path.
"""

TYPE_CHECKING = False  # as in typing, which is not imported for it

__version__ = "0.1.0"
__all__ = ["Guard", "Watch", "__version__", "check", "collect_facts", "diff_revision", "explain", "guard", "pin"]

if TYPE_CHECKING:
    from envdoctor.app.check import check
    from envdoctor.app.diff_revision import diff_revision
    from envdoctor.app.facts import collect_facts
    from envdoctor.app.guard import guard
    from envdoctor.app.guard_callback import Guard
    from envdoctor.app.pin import pin
    from envdoctor.app.rule_names import explain
    from envdoctor.watch import Watch

_LAZY = {
    "Guard": "envdoctor.app.guard_callback",
    "Watch": "envdoctor.watch",
    "check": "envdoctor.app.check",
    "collect_facts": "envdoctor.app.facts",
    "diff_revision": "envdoctor.app.diff_revision",
    "explain": "envdoctor.app.rule_names",
    "guard": "envdoctor.app.guard",
    "pin": "envdoctor.app.pin",
}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
