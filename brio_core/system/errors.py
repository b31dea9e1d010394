"""The one kind of error that is meant for the user."""


class BrioError(Exception):
    """A problem that the user can solve: one sentence with the culprit and the remedy."""

    def __init__(self, sentence: str) -> None:
        # Libraries, whose words may be part of it, break lines.
        super().__init__(" ".join(sentence.split()))
