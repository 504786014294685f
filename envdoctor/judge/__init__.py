"""The judge: facts are derived from facts and tables, and rules over all of them give findings. Knows no package.

In: facts, the matrix, the gate. Out: findings, what could not be checked, the exit code. Imports ``observe`` and
what is below it.
"""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "evaluate": "answer text_of title_of",
        "finding": "Assumption baseline_state CONFIDENCES Evidence exit_code Finding FoundFact Ignore Known "
        "NotChecked OfferedFix Plan Policy SEVERITIES Text",
        "judging": "Judgement Problem errors_of judge problem_of problems_of",
        "selftest": "RuleCase check_coverage check_mutations facts_of try_tests",
    },
)
