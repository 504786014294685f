"""Which files of a repository are judged: those that transformers loads; and what keeps it from loading them."""

from typing import Any

import pytest
from comparing import holds, outcome
from header_true import Repository
from rooms import comparer
from tables import rows

from envdoctor.revision import CodeSource, FileCode, parse

remote_code = comparer("remote_code")

CONFIG = {"auto_map": {"AutoModel": "modeling_x.XModel", "AutoConfig": "configuration_x.XConfig"}}
OTHERS = {"auto_map": {"AutoModel": "org/other--modeling_x.XModel"}}
MODEL = """from .configuration_x import XConfig
from .parts.attention import attend
class XModel:
    config_class = XConfig
"""
FILES = {
    "config.json": CONFIG,
    "modeling_x.py": MODEL,
    "configuration_x.py": "class XConfig:\n    pass\n",
    "parts/attention.py": "def attend(q):\n    return q * 2\n",
    "handler.py": "import requests\nclass Handler:\n    def go(self): return 1\n",
    "test_x.py": "def test(): assert 1\n",
}


def kinds(*sides: dict[str, Any]) -> dict[str, list[str]]:
    """The kinds of changes by file; everything but what another repository has was read."""
    compared = outcome(remote_code, *sides)
    away = {"config.json"} if any(side["config.json"] == OTHERS for side in sides) else set()
    assert {part.path for part in compared.unread} == away
    found: dict[str, list[str]] = {}
    for change in compared.changes:
        found.setdefault(change.path, []).append(change.kind)
    return found


def test_only_what_an_auto_map_leads_to_is_judged() -> None:
    new = FILES | {
        "handler.py": "import requests\nclass Handler:\n    def go(self): return requests.get(self.url)\n",
        "parts/attention.py": "def attend(q):\n    return q * 3\n",
        "test_x.py": "this is not Python",
    }
    assert kinds(FILES, new) == {
        "handler.py": ["file-not-loaded"],
        "parts/attention.py": ["value-replaced"],
        "test_x.py": ["file-not-loaded"],
    }


@pytest.mark.parametrize(
    "more",
    [
        {"config.json": "{"},  # nobody can tell
        {"config.json": {"model_type": "x"}},  # whoever loads the code does it by other means
        {"config.json": CONFIG, "modules.json": "[]"},  # sentence-transformers loads by other rules
    ],
)
def test_where_it_cannot_be_told_what_is_loaded_everything_is_judged(more: dict[str, Any]) -> None:
    old = FILES | more
    compared = outcome(remote_code, old, old | {"handler.py": "import os\nos.system('id')\n"})
    assert "exec-call-added" in {change.kind for change in compared.changes}


def test_code_of_another_repository_is_not_here_to_be_judged() -> None:
    new = FILES | {"config.json": OTHERS, "modeling_x.py": "x = 1\n"}
    found = kinds(FILES | {"config.json": OTHERS}, new)
    assert found == {"modeling_x.py": ["file-not-loaded"]}
    assert kinds(FILES, FILES | {"config.json": OTHERS}) == {
        "config.json": ["auto-map-changed", "auto-map-other-repository"]
    }


def test_a_file_beside_the_one_that_is_loaded_is_not_judged_whatever_it_is_called() -> None:
    old, new = (FILES | {"modeling_old.py": MODEL + f"x = {number}\n"} for number in (1, 2))
    assert kinds(old, new) == {"modeling_old.py": ["file-not-loaded"]}
    # No entry names a tokenizer: whoever loads it does so by other means.
    old, new = (FILES | {"tokenization_x.py": f"class XTokenizer:\n    size = {number}\n"} for number in (1, 2))
    assert kinds(old, new) == {"tokenization_x.py": ["training-code-changed"]}


def test_files_that_did_not_change_are_read_only_to_find_a_way() -> None:
    for path, text, other, is_read in (
        ("modeling_x.py", MODEL, "configuration_x.py", False),
        ("parts/attention.py", "", "modeling_x.py", True),
    ):
        sides = [Repository(texts=side) for side in (FILES, FILES | {path: f"{text}x = 1\n"})]
        outcome(remote_code, *sides)
        assert (other in {*sides[0].read_paths, *sides[1].read_paths}) is is_read


MARKS = f"{'<' * 7} HEAD\nx = 1\n{'=' * 7}\nx = 2\n{'>' * 7} main\n"
GONE = {"modeling_x.py": MODEL.replace("XModel:", "XModel(Gone):")}


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        ({"modeling_x.py": MODEL.replace("XModel", "YModel")}, "config.json names XModel, which it does not define"),
        ({"config.json": {"auto_map": {"AutoModel": "gone.XModel"}}}, "config.json names it, and it is not there"),
        (
            {"modeling_x.py": MODEL.replace("from .conf", "from conf")},
            "it imports configuration_x without a dot in front, which asks for a package of that name",
        ),
        ({"modeling_x.py": MODEL + "from .gone import f\n"}, "it imports .gone.f, and there is no such file"),
        (
            {"parts/attention.py": "x = 1\n", "modeling_x.py": MODEL + "y = 1\n"},
            "it imports .parts.attention.attend, which parts/attention.py does not define",
        ),
        (GONE, "XModel derives from Gone, which is not defined"),
        ({"modeling_x.py": MODEL + MARKS}, "it holds the marks of a conflict"),
        ({"modeling_x.py": MODEL + "x = = 1\n"}, "it is not Python that this interpreter can parse (line 5)"),
    ],
)
def test_what_can_no_longer_be_loaded_is_named_and_so_is_what_can_again(new: dict[str, Any], reason: str) -> None:
    for sides, kind in (((FILES, FILES | new), "code-broken"), ((FILES | new, FILES), "code-mended")):
        found = [change for change in outcome(remote_code, *sides).changes if change.kind == kind]
        gone = kind == "code-mended" and "config.json" in new  # the file is not there any more
        assert [change.detail for change in found] == ([] if gone else [reason])
    assert not any(change.kind == "code-broken" for change in outcome(remote_code, FILES | new, FILES | new).changes)


def test_what_was_broken_before_and_what_defines_its_names_in_other_ways_is_no_news() -> None:
    broken = FILES | {"modeling_x.py": MODEL + "from .gone import f\n"}
    worse = broken | {"modeling_x.py": MODEL + "from .gone import f, g\n"}
    assert "code-broken" not in kinds(broken, worse)["modeling_x.py"]
    for text in ("from .parts.attention import *\n", "if 1:\n    class XModel: ...\n", "XModel = make()\n"):
        assert "code-broken" not in kinds(FILES, FILES | {"modeling_x.py": text})["modeling_x.py"], text


def test_parameters_of_configurations_are_taken_by_name_and_their_defaults_by_what_config_json_lacks() -> None:
    def sides(old: str, new: str, **settings: object) -> list[str]:
        config = CONFIG | settings
        texts = (f"class XConfig:\n    def __init__(self, {p}): self.x = 1\n" for p in (old, new))
        two = [FILES | {"config.json": config, "configuration_x.py": text} for text in texts]
        return kinds(*two)["configuration_x.py"]

    assert sides("a=1, b=2, **kwargs", "b=2, **kwargs") == ["signature-extended"]
    assert sides("a=1, b=2", "b=2") == ["signature-changed"]
    assert sides("a=1, **kwargs", "a=2, **kwargs") == ["default-changed"]
    assert sides("a=1, **kwargs", "a=2, **kwargs", a=1) == ["default-unused"]
    assert sides("a=1, **kwargs", "a=2, b=3, **kwargs") == ["default-changed", "signature-extended"]


def test_marks_of_a_conflict_are_known_and_what_another_interpreter_may_parse_is_not() -> None:
    for text, unread in ((MARKS, []), ("x = = 1\n", ["modeling_x.py"])):
        compared = outcome(remote_code, FILES, FILES | {"modeling_x.py": MODEL + text})
        assert [change.kind for change in compared.changes] == ["code-broken"]
        assert [part.path for part in compared.unread] == unread
    back = outcome(remote_code, FILES | {"modeling_x.py": MODEL + MARKS}, FILES)  # what changed cannot be told
    assert [part.path for part in back.unread] == ["modeling_x.py"]


FILE, TOKENIZER = "config.json", "tokenizer_config.json"
ONE = {"AutoModel": "a.A"}
PIPELINE = {"custom_pipelines": {"chat": {"impl": "o/x--p.P", "pt": ["AutoModel"]}}}


def maps(old: Any, new: Any, *expected: str, file: str = FILE, away: str = "") -> None:
    """Hold that these are the changes, and that the code of the repository ``away`` could not be told."""
    compared = outcome(remote_code, {file: {"auto_map": old}}, {file: {"auto_map": new}})
    reasons = [(file, f"the code that it names is in {away}, and was not compared")] if away else []
    assert [(one.path, one.reason) for one in compared.unread] == reasons
    holds(compared._replace(unread=()), *expected)
    assert all(change.path == file for change in compared.changes)


def test_what_a_repository_asks_to_load_is_compared() -> None:
    maps(ONE, {"AutoModel": "a.B"}, "auto-map-changed AutoModel: a.A -> a.B")
    gone = "auto-map-changed AutoModel: a.A -> None"
    maps(ONE, {"AutoConfig": "a.C"}, "auto-map-changed AutoConfig: None -> a.C", gone)
    # tokenizers have two classes, and the old form of their list is the same as the table
    two, other = ["t.T", None], "auto-map-other-repository AutoTokenizer.1: None -> o/x--t.F"
    maps({"AutoTokenizer": two}, {"AutoTokenizer": ["t.T", "o/x--t.F"]}, other, file=TOKENIZER, away="o/x")
    maps(two, {"AutoTokenizer": two}, file=TOKENIZER)


def test_code_of_another_repository_is_told_apart() -> None:
    other = "auto-map-other-repository AutoModel: a.A -> evil/code--a.A"
    maps(ONE, {"AutoModel": "evil/code--a.A"}, other, away="evil/code")
    maps(ONE, {"AutoModel": "Org/Model--a.A"}, "auto-map-changed")  # the own one, spelled out
    before = {"AutoModel": "o/x--a.A"}
    maps(before, {**before, "AutoConfig": "o/x--b.B"}, "auto-map-changed AutoConfig: None -> o/x--b.B", away="o/x")
    maps(before, {"AutoModel": "o/x--a.B"}, "auto-map-changed", away="o/x")
    pipeline = outcome(remote_code, {FILE: {}}, {FILE: PIPELINE})
    assert [one.path for one in pipeline.unread] == [FILE]
    holds(pipeline._replace(unread=()), "auto-map-other-repository custom_pipelines.chat")


@pytest.mark.parametrize("value", [None, 1, "a.A", [1], {"AutoModel": 1}, {"AutoModel": [[]]}, {"AutoModel": {}}])
def test_odd_values_are_no_references(value: object) -> None:
    maps({}, value)


def test_a_configuration_that_is_no_json_is_unread() -> None:
    assert [one.path for one in outcome(remote_code, {FILE: "{}"}, {FILE: "{"}).unread] == [FILE]


@rows("text required")
def test_imports_that_must_succeed_are_those_that_always_run(text: str, required: bool) -> None:
    (code,) = parse([CodeSource("m.py", text.encode())])
    assert isinstance(code, FileCode)
    assert [one.name for one in code.imports if one.required] == (["transformers.a"] if required else [])
