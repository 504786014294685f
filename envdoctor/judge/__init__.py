"""The judge: facts are derived from facts and tables, and rules over all of them give findings. Knows no package.

In: facts, the matrix, the gate. Out: findings, what could not be checked, the exit code. Imports ``observe`` and
what is below it.
"""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "evaluate": "answer",
        "finding": "Assumption CONFIDENCES Evidence Finding FoundFact NotChecked OfferedFix Plan SEVERITIES Text",
        "judging": "Judgement Problem errors_of judge problem_of problems_of",
        "messages": "text_of title_of",
        "policy": "Ignore Known Policy baseline_state exit_code",
        "selftest": "RuleCase check_coverage check_mutations facts_of try_tests",
    },
)
