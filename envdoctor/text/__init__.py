"""Text and files from outside: read within bounds, cleaned before they are shown, without what is private."""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "cache": "CacheFolder cache_home",
        "clean": "without_credentials without_url_credentials",
        "documents": "content_of decoded read_bounded read_named text_of",
        "files": "Budget Files Looks Spent because_of read_regular",
        "language": "say sentence",
        "looks": "add",
        "message": "Message MessageError as_message joined quoted said_by",
        "nearest": "alike did_you_mean",
    },
)
