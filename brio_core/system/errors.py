"""The one kind of error that is meant for the user."""

# For files that a user may name: nobody is told to delete a file of theirs.
MAYBE_OURS = "name the right file, or, if the workflow made this one, delete it and run again"


class BrioError(Exception):
    """A problem that the user can solve: one sentence with the culprit and the remedy."""

    def __init__(self, sentence: str) -> None:
        # Libraries, whose words may be part of it, break lines.
        super().__init__(" ".join(sentence.split()))
