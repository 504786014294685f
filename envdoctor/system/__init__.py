"""The disk, processes and untrusted text: one bounded reader, one cache, one way to ask a bounded child.

In: paths, bytes and texts of others, programs to start. Out: text that is cut, cleaned and without secrets;
messages in two languages; what a child answered, or how it ended. Imports nothing of envdoctor.
"""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "asking": "ask ask_program ChildProblem Limits minimal_environment processors run_child",
        "cache": "add_looks cache_home CacheFolder",
        "clean": "without_credentials without_url_credentials",
        "documents": "content_of decoded read_bounded read_named text_of",
        "files": "Budget Files Looks Spent because_of read_regular",
        "message": "alike as_message did_you_mean joined Message MessageError quoted said_by say sentence",
        "target": "ChildAnswer ENDINGS NO_TORCH PAYLOAD Place Task run_in_target scratch_folder",
        "templates": "Refusal template_environment",
    },
)
