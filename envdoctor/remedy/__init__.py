"""Remedies: fixes that were judged before they are offered, plans, answers to error messages.

In: findings and the facts that they rest on; a traceback. Out: commands, changes of the user's own files, lists of
versions, the home of a missing name. Imports ``judge`` and what is below it.
"""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "answering": "answer_to",
        "candidates": "Build Candidates builds_of no_build",
        "commands": "Before Remedy before install_commands place_of try_remedy",
        "fixes": "check_first_fix check_fixes with_fixes",
        "installer": "NoResolver Wanted resolve",
        "plan": "with_plan",
        "question": "Answer Asker Home Moved Situation Suspect Way",
        "suspects": "suspects_in",
    },
)
