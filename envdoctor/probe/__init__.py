"""Experiments on this machine: probes run in bounded children of the target interpreter, and are judged here."""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "catalogue": "CatalogueError FIRST Job PAYLOAD Probe SUITES choose find_probes has_probe",
        "courtesy": "ask ask_local",
        "reproducer": "Case Result cases_of groups_of",
        "recording": "RecordingError read_recording write_head write_outcome",
        "results": "Results result_of results_of",
        "running": "Outcome outcome_of run_jobs",
        "session": "Session Wishes in_use run_session session_of",
        "verdict": "Verdict judge",
    },
)
