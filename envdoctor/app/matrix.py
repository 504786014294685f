"""``envdoctor matrix``: do the rules pass their own tests, and are rules and tables well written?"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import TypeAlias

from envdoctor.app.errors import UsageProblem
from envdoctor.judge.judging import problems_of
from envdoctor.judge.selftest import RuleCase, check_coverage, check_mutations, try_tests
from envdoctor.matrix.linting import Schemas, lint_documents, lint_rule, strange_words
from envdoctor.matrix.matrix import Matrix, add_file
from envdoctor.matrix.rules import Rule, placeholders, with_conditions
from envdoctor.remedy.fixes import check_first_fix, check_fixes
from envdoctor.system.files import because_of

#: The text of a new rule; the day is put in.
_NEW = Path(__file__).with_name("new_rule.toml")


#: One fault of a rule or table: the file, and a clause that names the key.
Complaint: TypeAlias = tuple[str, str]


def lint(matrix: Matrix, files: Sequence[Path] = (), *, today: date) -> Iterator[Complaint]:
    """Yield every complaint, file by file; with ``files``, which may be private rules too, those of these files alone.
    The shipped rules of an installed envdoctor were linted before. Raises :class:`UsageProblem` without the library
    that reads the schemas, and for a file that does not belong to a matrix."""
    try:
        schemas = Schemas(matrix.home / "schema")
    except ImportError:
        raise UsageProblem("the lint needs the library jsonschema: python -m pip install jsonschema") from None
    ids, documents = _rules_and_documents(matrix, files) if files else (None, None)
    for broken in matrix.broken:
        for problem in broken.problems if ids is None or broken.id in ids else ():
            yield broken.origin, problem
    faults = list(lint_documents(matrix, schemas, documents))
    yield from faults
    if faults:
        yield faults[0][0], "until this is mended, the tests of rules are not run: they need the tables"
    for rule in map(with_conditions, matrix.rules):
        if rule.id in (matrix.files if ids is None else ids):
            yield from ((rule.origin, text) for text in lint_rule(rule, matrix, schemas, today=today))
            if not faults:
                yield from ((rule.origin, text) for text in _test_complaints(rule, matrix))


def _rules_and_documents(matrix: Matrix, files: Sequence[Path]) -> tuple[set[str], list[Path]]:
    """Return the ids of the rules in these files, and the other documents among them."""
    home = matrix.home.resolve()
    ids = {path.resolve(): rule_id for rule_id, path in matrix.files.items()}
    rules: set[str] = set()
    documents: list[Path] = []
    for path in (file.resolve() for file in files):
        if path.suffix != ".toml" or not path.is_file():
            raise UsageProblem("{}: a rule or a table (*.toml) is expected", path)
        if path.parent in (home, home / "tables"):
            documents.append(matrix.home / path.relative_to(home))
            continue
        if path not in ids:
            add_file(matrix, path)
        rules.add(ids.get(path, path.stem))
    return rules, documents


def _test_complaints(rule: Rule, matrix: Matrix) -> Iterator[str]:
    yield from strange_words(rule, matrix)
    cases = try_tests(rule, matrix)
    failed = [case for case in cases if not case.passed]
    yield from map(str, failed)
    if not failed:  # they would only repeat the failure
        yield from check_coverage(rule, cases, matrix)
        yield from check_mutations(rule, cases, matrix)
        for case in (case for case in cases if case.got == "match"):  # a placeholder stays, or its value is unknown
            for message in problems_of(rule, case.facts, matrix).values():
                names = {key for text in message if text for key in placeholders(text) if matrix.registry.find(key)}
                # The old value of a change may itself be called unknown.
                if names or ("unknown" in message.en and rule.each != "change"):
                    yield f"test {case.number}: the message is not filled: {message.en}"
        yield from check_fixes(rule, cases, matrix)
        yield from check_first_fix(rule, cases, matrix)


def test_rules(rules: Iterable[Rule], matrix: Matrix) -> Iterator[tuple[str, RuleCase]]:
    """Yield the embedded tests of rules, as (rule id, test)."""
    for rule in map(with_conditions, rules):
        for case in try_tests(rule, matrix):
            yield rule.id, case


def stale(matrix: Matrix, *, today: date, days: int) -> Iterator[Complaint]:
    """Yield the rules and tables whose sources were not read again for ``days`` days."""
    limit = (today - timedelta(days=days)).isoformat()
    for rule in matrix.rules:
        texts = matrix.texts(rule)
        day = max((str(source["checked"]) for source in texts["evidence"]), default=str(texts["modified"]))
        if day < limit:
            yield rule.origin, f"its evidence was last read on {day}"
    for path in sorted(matrix.home.glob("tables/*.toml")):
        of = str(matrix.part(path.stem, "table").get("as_of", limit))
        if of < limit:
            yield f"tables/{path.name}", f"as_of: {of}"


def new_rule(rule_id: str, folder: Path, matrix: Matrix, *, today: date) -> Path:
    """Write a file to begin a rule with, and return its path. Raises :class:`UsageProblem` for an id that is taken."""
    holder = matrix.origins().get(rule_id) or (matrix.retired(rule_id) and "matrices/retired.toml")
    if holder:
        raise UsageProblem("the id {} is also that of {}: an id is never used again", rule_id, holder)
    path = folder / f"{rule_id}.toml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(_NEW.read_text(encoding="utf-8").replace("2026-01-01", today.isoformat()))
    except OSError as error:
        raise UsageProblem("{}: cannot be written: {}", path, because_of(error)) from None
    return path
