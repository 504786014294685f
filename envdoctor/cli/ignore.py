"""``envdoctor ignore ID --reason TEXT``."""

from datetime import date, datetime
from pathlib import Path
from typing import Any

import click


@click.command("ignore")
@click.argument("rule_id", metavar="ID")
@click.option("--reason", required=True, help="Why this finding is accepted in this project.")
@click.option("--until", type=click.DateTime(["%Y-%m-%d"]), metavar="DATE", help="Last day on which it holds.")
@click.option(
    "--where", "where", metavar="KEY=VALUE", multiple=True, help="Only for this record, e.g. gpu.name=Tesla\\ T4."
)
@click.option("--until-fixed", is_flag=True, help="It ends when a release without the problem is known.")
@click.option("--path", metavar="PATTERN", help="Only where what is to be edited lies there: a folder or pattern.")
@click.option(
    "--config", metavar="FILE", type=click.Path(path_type=Path), help="File to write instead of the project's."
)
def command(rule_id: str, reason: str, until: datetime | None, where: tuple[str, ...], **more: Any) -> int:
    """Accept a finding: write it, with its reason, into the project's configuration."""
    from envdoctor.app.errors import UsageProblem
    from envdoctor.app.facts import working_directory
    from envdoctor.app.ignore import demand_match, write_ignore
    from envdoctor.app.rule_names import rule_named
    from envdoctor.judge.policy import Ignore
    from envdoctor.matrix.matrix import load_matrix
    from envdoctor.system.clean import clean

    if not reason.strip():
        raise UsageProblem("--reason is empty: say why the finding is accepted")
    matrix = load_matrix()
    named = None if rule_id.startswith("x-") else rule_named(rule_id, matrix).rule
    rule = rule_id if named is None else named.id
    pairs: dict[str, str] = {}
    for text in where:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageProblem("--where {}: key=value is expected", text)
        pairs[key] = demand_match(named, key, value, matrix) if named is not None else value
    fixed = matrix.fixed_in(rule) if more["until_fixed"] else {}
    if fixed:
        named_fix = ", ".join(f"{key.removeprefix('pkg.')} {version}" for key, version in fixed.items())
        raise UsageProblem("--until-fixed: {} is fixed in {} already", rule, named_fix)
    last: date | None = until.date() if until else None
    here = working_directory()
    if here is None:
        raise UsageProblem("the working directory has been deleted: there is no project to write into")
    entry = Ignore(rule, reason, last, pairs, path=more["path"], until_fixed=more["until_fixed"])
    file = write_ignore(entry, start=here, config=more["config"])
    formerly = f" ({rule_id} is its former id)" if rule != rule_id else ""
    click.echo(f"{clean(str(file))}: {rule}{formerly} is accepted" + (f" until {last}" if last else ""))
    return 0
