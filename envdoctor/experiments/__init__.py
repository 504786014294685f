"""The annex: probes of this machine before a run, and the watch during it. No other room rests on it but reports.

In: an interpreter with torch; a model in training. Out: measured cases with their verdicts; flight records. Scripts
for the interpreter lie in ``payload``. Imports ``peak`` and what is below it; ``watch`` needs torch and little
else.
"""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "probe.catalogue": "CatalogueError FIRST Job Outcome PAYLOAD Probe SUITES choose find_probes has_probe"
        " outcome_of",
        "probe.courtesy": "ask ask_local",
        "probe.recording": "RecordingError read_recording write_head write_outcome",
        "probe.results": "Result Results groups_of result_of results_of",
        "probe.session": "JudgedCase Session Wishes cases_of in_use run_jobs run_session session_of",
        "probe.verdict": "Verdict judge",
    },
)
