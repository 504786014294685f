"""Do plans and first fixes leave no error? Draws stacks and runs at random, judges them, and applies what is offered.

    python benchmarks/plans.py [--count 200] [--seed 1]

Each case draws a release of each package of STACK, a machine and a run; one without an error is drawn again. Every
first fix that is offered as a change, and the plan, is applied to the facts, which are derived and judged anew. Printed
are the cases in which an error is left that the plan does not name, or a fix that does not end its own finding. What
the real installer makes of plans is measured by fixes.py.
"""

from __future__ import annotations

import argparse
import random
import re
from collections.abc import Iterator

from envdoctor.facts import Fact, FactSet
from envdoctor.facts.registry import parse_value
from envdoctor.judge import Judgement, Policy, judge
from envdoctor.judge.derivations import with_facts
from envdoctor.matrix import Matrix, load_matrix
from envdoctor.remedy import with_fixes, with_plan
from envdoctor.remedy.commands import Remedy, apply

STACK = [
    "torch",
    "transformers",
    "peft",
    "trl",
    "accelerate",
    "datasets",
    "tokenizers",
    "huggingface-hub",
    "numpy",
    "bitsandbytes",
    "pyarrow",
]
#: Releases of this day on are drawn from.
SINCE = "2024-01-01"
RUNS = {
    "model.repo": ["THUDM/glm-4-9b-chat-hf", "THUDM/chatglm3-6b", "Qwen/Qwen2.5-7B", "google/gemma-2-9b", "gpt2"],
    "recipe.method": ["lora", "qlora", "full"],
    "recipe.framework": ["transformers", "trl"],
    "recipe.batch_size": ["1", "2", "8"],
    "recipe.max_length": ["512", "4096"],
    "recipe.attn": ["sdpa", "eager", "flash_attention_2"],
    "recipe.dtype": ["bf16", "fp16"],
    "recipe.gradient_checkpointing": ["true", "false"],
    "recipe.optimizer": ["adamw_torch", "paged_adamw_8bit"],
    "python.version": ["3.10.14", "3.11.9", "3.12.4"],
    "os.platform": ["linux"],
    "os.arch": ["x86_64"],
    "driver.version": ["525.85.12", "535.129.03", "550.54.15", "580.65.06"],
    "pkg.flash-attn": ["absent", "2.7.4.post1"],
}
_PIN = r"(?<![\w.-])([a-z0-9][a-z0-9-]*)==([0-9][0-9a-z.]*(?:\+[a-z0-9.]+)?)"


def drawn(seed: int, matrix: Matrix) -> Iterator[FactSet]:
    """Facts of one stack and run after the other."""
    dice = random.Random(seed)
    released = {
        name: [one.version for one in matrix.ledger.package(name).releases if one.date >= SINCE and not one.yanked]
        for name in STACK
    }
    while True:
        said = {f"pkg.{name}": dice.choice(versions) for name, versions in released.items()}
        said |= {key: dice.choice(values) for key, values in RUNS.items()}
        yield facts_of(said, matrix)


def facts_of(said: dict[str, str], matrix: Matrix) -> FactSet:
    """What is said as facts, with what follows."""
    given = [Fact(key, parse_value(matrix.registry.find(key), text), "drawn", "given") for key, text in said.items()]
    return with_facts(FactSet(), given, matrix)


def errors(judgement: Judgement) -> dict[str, str]:
    """The errors that are shown, by fingerprint."""
    return {one.fingerprint: one.id for one in judgement.findings if one.severity == "error" and not one.superseded_by}


def applied(facts: FactSet, changes: dict[str, str], matrix: Matrix) -> Judgement:
    """The judgement of the facts with these changes, and with what the installer moves along."""
    given = [
        Fact(key, parse_value(matrix.registry.find(key), text), "the fix", "given") for key, text in changes.items()
    ]
    pins = {fact.key[4:]: f"=={fact.value}" for fact in given if fact.key[:4] == "pkg." and isinstance(fact.value, str)}
    return judge(apply(Remedy(pins, facts=tuple(given)), facts, matrix), matrix, Policy())


def changes_of(commands: tuple[str, ...], settings: dict[str, str], env: dict[str, str]) -> dict[str, str]:
    """What commands and settings change, as facts."""
    text = " ".join(commands)
    found = {f"pkg.{name}": version for name, version in re.findall(_PIN, text)}
    gone = re.findall(r"uninstall (?:-y )?([a-z0-9 -]+)", text)
    found |= {f"pkg.{name}": "absent" for names in gone for name in names.split() if not name.startswith("-")}
    return {**found, **settings, **{f"env.{name}": value for name, value in env.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    matrix = load_matrix()
    cases = plans = fixes = partly = 0
    bad: list[str] = []
    for number, facts in enumerate(drawn(options.seed, matrix)):
        judgement = judge(facts, matrix, Policy())
        standing = errors(judgement)
        if not standing:
            continue
        judgement = with_plan(with_fixes(judgement, matrix), matrix)
        cases += 1
        for finding in judgement.findings:
            fix = next((one for one in finding.fixes if one.withheld is None), None)
            change = changes_of(fix.commands, dict(fix.set), dict(fix.env)) if fix is not None else {}
            if finding.fingerprint not in standing or not change:
                continue
            fixes += 1
            left = errors(applied(facts, change, matrix))
            new = sorted({left[one] for one in left.keys() - standing.keys()})
            if finding.fingerprint in left or new:
                stays = finding.fingerprint in left
                bad.append(f"case {number}: fix of {finding.id}: {change}: leaves it {stays}, new {new}")
        plan = judgement.plan
        if plan is not None:
            plans += 1
            partly += bool(plan.leaves)
            change = changes_of(plan.commands, dict(plan.set), dict(plan.env))
            left = errors(applied(facts, change, matrix))
            told = {standing.get(one) for one in plan.leaves}
            more = sorted(name for one, name in left.items() if one not in plan.leaves and name not in told)
            if more:
                bad.append(f"case {number}: plan {change}: leaves {more}")
        if cases == options.count:
            break
    print(f"{cases} cases with errors (seed {options.seed}), {fixes} first fixes and {plans} plans applied")
    print(f"{len(bad)} not good")
    print(f"{partly} plans name an error that they leave")
    print("\n".join(bad))


if __name__ == "__main__":
    main()
