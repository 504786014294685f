"""envdoctor: the environment compatibility doctor for LLM fine-tuning.

The public Python API is in :mod:`envdoctor.app`; ``check``, ``collect_facts`` and ``explain`` are also reachable here,
and are imported only when they are used. This file imports nothing: ``python -m envdoctor`` reads it while the working
directory is still on the path.
"""

TYPE_CHECKING = False  # as in typing, which is not imported for it

__version__ = "0.1.0"
__all__ = ["__version__", "check", "collect_facts", "explain"]

if TYPE_CHECKING:
    from envdoctor.app.check import check
    from envdoctor.app.explain import explain
    from envdoctor.app.facts import collect_facts

_LAZY = {
    "check": "envdoctor.app.check",
    "collect_facts": "envdoctor.app.facts",
    "explain": "envdoctor.app.explain",
}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
