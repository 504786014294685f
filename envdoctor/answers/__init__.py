"""What an error message asks for, looked up: which releases have it, where it went, and what to install."""

from envdoctor.door import door

__all__, __getattr__ = door(
    __name__,
    {
        "answer": "Answer Asker Home Moved Suspect Way",
        "answering": "answer_to",
        "situation": "Situation",
        "suspects": "suspects_in",
    },
)
