"""The public Python API: one module a command, each a page that joins the floors below.

>>> from envdoctor.app.check import check
>>> from envdoctor.app.facts import Sources
>>> report = check(Sources(model="THUDM/glm-4-9b-chat-hf", assignments=["recipe.batch_size=2"]))  # doctest: +SKIP
"""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "configuration": "accepted Configuration demand_match find_configuration load_configuration read_baseline "
        "write_baseline write_ignore write_whole",
        "diff_revision": "RevisionRequest",
        "errors": "JobError UsageProblem",
        "explaining": "rule_named text_of_option",
        "facts": "Gathered Sources collect_facts target_facts working_directory",
        "guard": "Stopped",
        "guard_callback": "Guard",
        "matrix": "lint new_rule test_rules",
        "probe": "catalogue",
        "ranks": "all_ranks launched",
        "reporting": "check_targets targets_of",
    },
)
