"""Small probes without torch, in a payload folder of their own, for tests of everything around a probe."""

from pathlib import Path

CONTEXT = """
emit({"kind": "environment", "case": "build", "torch": "2.13.0+cpu", "accelerators": 0})
"""


def payload(folder: Path, **bodies: str) -> Path:
    """A payload with a stand-in for the context, and probes with these bodies of ``run``."""
    home = folder / "payload"
    (home / "probes").mkdir(parents=True)
    write_probe(home, "context", CONTEXT, alone=True)
    for name, body in bodies.items():
        write_probe(home, name, body)
    return home


def write_probe(home: Path, name: str, body: str, **declared: object) -> None:
    """One probe: its body, indented by nothing, may use ``job`` and ``emit``."""
    declaration = {
        "title": "a stand-in",
        "needs": [],
        "suites": {"quick": [{"dtype": "bf16", "backend": "default"}]},
        "seconds": {"cpu": 20},
        "memory_mib": 300,
        **declared,
    }
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    probes = f'PROBES = {{\n    "{name.replace("_", "-")}": {declaration!r}\n}}'
    text = f'"""A stand-in."""\n\n{probes}\n\n\ndef {name}(job, emit):\n{lines}\n'
    (home / "probes" / f"{name}.py").write_text(text)
