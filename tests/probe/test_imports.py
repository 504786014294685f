"""The probe ``imports``: statements are really run, each result stands alone, and what they say becomes facts."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from known import given, judged
from observing import shipped
from planted import results

from envdoctor.experiments import Job, Outcome, find_probes, run_jobs
from envdoctor.facts import ABSENT
from envdoctor.system import Place

posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="one process for all statements")
Run = Callable[..., dict[str, Mapping[str, Any]]]


def job(*statements: str) -> Job:
    return find_probes()["imports"].jobs("quick", "cpu", by_name=True, entries=statements)[0]


def runs(outcome: Outcome) -> Any:
    """The fact that rules read."""
    return next(fact.value for fact in results(outcome).facts if fact.key == "import_run")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run statements in an environment of modules with these texts; the records by statement."""

    def start(*statements: str, **modules: str) -> dict[str, Mapping[str, Any]]:
        site = tmp_path / "site"
        site.mkdir()
        for name, text in modules.items():
            (site / f"{name}.py").write_text(text)
        (tmp_path / "scratch").mkdir()
        place = Place(sys.executable, {**os.environ, "PYTHONPATH": str(site)}, str(tmp_path), str(tmp_path / "scratch"))
        (outcome,) = run_jobs([job(*statements)], place)
        assert outcome.ending == "ok"
        assert runs(outcome).incomplete is None
        return {str(item["entry"]): item for item in runs(outcome)}

    return start


def test_a_missing_name_is_told_with_its_place_and_the_others_work(run: Run) -> None:
    result = run(
        "import taker", "from giver import here", giver="here = 1", taker="import os\nfrom giver import nothing\n"
    )
    assert result["from giver import here"]["outcome"] == "works"
    item = dict(result["import taker"])
    error = item.pop("error")
    assert error.startswith("ImportError: ") and "nothing" in error and "(giver.py)" in error
    assert item == {"entry": "import taker", "outcome": "fails", "place": "taker:2", "name": "giver.nothing"}


def test_the_first_cause_is_told_and_not_what_was_made_of_it(run: Run) -> None:
    lazy = "try:\n    import gone\nexcept ImportError as error:\n    raise RuntimeError('no lazy') from error\n"
    (item,) = run("import lazy", lazy=lazy).values()
    assert item["error"].startswith("ModuleNotFoundError: ")
    assert (item["name"], item["place"]) == ("gone", "lazy:2")


def test_a_cause_that_python_itself_hides_is_told(run: Run) -> None:
    lazy = "def __getattr__(name):\n    if name != 'Thing':\n        raise AttributeError(name)\n    import giver\n"
    result = run("from lazy import Thing", "from lazy import Other", lazy=lazy + "    return giver.gone\n", giver="")
    hidden, plain = (item["error"] for item in result.values())
    assert hidden.startswith("AttributeError: ") and "'gone'" in hidden
    assert plain.startswith("ImportError: ") and "'Other'" in plain


@posix
def test_a_statement_that_crashes_or_ends_the_process_hides_nothing(run: Run) -> None:
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    leaves = "import os; os._exit(0)"
    result = run("import crash", "import leaves", "import good", crash=crash, leaves=leaves, good="")
    assert [(item["outcome"], item["error"]) for item in result.values()] == [
        ("crashes", "SIGSEGV"),
        ("crashes", "the process ended itself"),
        ("works", ABSENT),
    ]


@posix
def test_a_failed_statement_leaves_nothing_behind(run: Run) -> None:
    spoiler = "import giver; giver.value = None; raise ImportError('no')"
    result = run("import spoiler", "from giver import value", spoiler=spoiler, giver="value = 1\ndel value\n")
    assert [item["outcome"] for item in result.values()] == ["fails", "fails"]


@posix
def test_what_fails_with_its_package_is_not_run_again(run: Run, tmp_path: Path) -> None:
    log = tmp_path / "log"
    text = f"open({str(log)!r}, 'a').write('x'); raise ImportError('no')"
    result = run("import one", "from one import a", "from one import b", one=text)
    assert {item["error"] for item in result.values()} == {"ImportError: no"}
    assert len(log.read_text()) == 2  # the statements together, then the first of them alone


@pytest.mark.parametrize("errors", [None, [], ["text"], [{"type": 1, "message": []}]])
def test_a_child_that_tells_nonsense_gives_no_exception(errors: object) -> None:
    seen = {"case": "import one", "judge": "import", "outcome": "?", "errors": errors}
    result = runs(Outcome(job("import one"), (seen,), "timeout", "after 600 s"))
    assert result.incomplete == "timeout: after 600 s"
    assert [(item["outcome"], item["error"]) for item in result] == [("crashes", "it gave no answer")]


LINK = {
    "consumer": "peft",
    "consumer_version": "0.17.0",
    "provider": "transformers",
    "provider_version": "5.23.0",
    "kind": "name",
    "name": "transformers.HybridCache",
    "module": "transformers",
    "wanted": "absent",
    "place": "peft/peft_model:37",
    "stops": "import peft, from peft import LoraConfig, … +3",
    "text": "absent",
}
RUN = {
    "entry": "import peft",
    "outcome": "fails",
    "error": "ImportError: cannot import name 'HybridCache' from 'transformers'",
    "place": "peft/peft_model:37",
    "name": "transformers.HybridCache",
}


EXPLAINS, FAILS = "import-takes-what-is-not-there", "import-really-fails"


@pytest.mark.parametrize(
    ("run", "expected"),
    [
        ({}, {EXPLAINS: None, FAILS: EXPLAINS}),
        ({"place": "peft/other:1"}, {EXPLAINS: None, FAILS: None}),
        ({"outcome": "works"}, {}),
        ({"entry": "import trl", "outcome": "works"}, {EXPLAINS: None}),
    ],
)
def test_a_link_explains_the_failure_in_its_place_and_falls_where_the_real_import_works(
    run: dict[str, str], expected: dict[str, str | None]
) -> None:
    matrix = shipped()
    facts = given({"link": [LINK], "import_run": [{**RUN, **run}]}, matrix.registry)
    errors = [result for result in judged(facts, matrix).findings if result.severity == "error"]
    assert {result.id: result.superseded_by for result in errors} == expected
