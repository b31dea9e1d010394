"""The one kind of error that is meant for the user."""


class BrioError(Exception):
    """A problem that the user can solve: one sentence with the culprit and the remedy."""
