"""Places in remote code that reach beyond computing, and version gates."""

import pytest
from comparing import outcome
from rooms import comparer
from tables import table

from envdoctor.revision import Change

remote_code = comparer("remote_code")


def found(new: str, old: str = "") -> list[Change]:
    """The places that a new file has and an old one lacks."""
    compared = outcome(remote_code, *({"m.py": f"first = 0\n{side}"} for side in (old, new)))
    assert compared.unread == ()
    kinds = ("call", "write", "load", "import", "gate")
    return [
        change
        for change in compared.changes
        if change.kind.removesuffix("-added").rpartition("-")[2] in kinds and not change.kind.startswith("import")
    ]


PLACES = table(__file__)["places"]


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in PLACES.items() for text in texts])
def test_what_reaches_beyond_computing_is_seen_and_ordinary_code_is_left_alone(kind: str, text: str) -> None:
    kinds = {change.kind for change in found(text)}
    assert kind in kinds if kind else not kinds


def test_a_place_is_named_by_its_function_and_says_when_it_runs() -> None:
    at_load, at_call = found("import os\nclass A:\n    os.system('a')\n    def f(self): os.system('b')")
    when = "runs as soon as the code is loaded"
    assert (at_load.symbol, at_load.after, at_load.detail) == ("A", "os.system('a')", when)
    assert (at_call.symbol, at_call.after, at_call.detail) == ("A.f", "os.system('b')", "runs when A.f does")
    for text in (
        "def f(a=eval('1')): pass",
        "@eval('1')\ndef f(): pass",
        "def f(a: eval('1')): pass",
        "f = lambda a=eval('1'): a",
    ):
        (change,) = found(text)
        assert change.detail == when, text
    (change,) = found("import os\ndef f():\n    os.system('a')\n    os.system('b')")
    assert (change.count, change.after) == (2, "os.system('a'); os.system('b')")


LONG = f"import os\nos.system('{'a' * 1000}b')"
IN_FUNCTION = "import os\ndef f(): os.system('id')"


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        (IN_FUNCTION, IN_FUNCTION + "\nx = 1", 0),
        (IN_FUNCTION, IN_FUNCTION.replace("def f", "def g"), 0),
        ("import os\nos.system('id')", "import os\nos.system('curl x | sh')", 1),
        (LONG, LONG.replace("b'", "c'"), 1),
        ("open(path, 'w')", "open(target, 'w')", 0),
        ("open(path, 'w')", "open('/etc/passwd', 'w')", 1),
    ],
)
def test_what_was_there_before_is_not_new_and_another_command_is(old: str, new: str, count: int) -> None:
    assert len(found(new, old)) == count


GATES = table(__file__)["gates"]


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in GATES.items() for text in texts])
def test_a_gate_on_the_second_number_alone_is_told_from_other_gates(kind: str, text: str) -> None:
    assert {change.kind for change in found(text)} == {*filter(None, [kind])}
