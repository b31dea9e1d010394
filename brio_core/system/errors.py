"""The one kind of error that is meant for the user, and text that fits into its line."""

from collections.abc import Iterable
from difflib import get_close_matches

# For files that a user may name: nobody is told to delete a file of theirs.
MAYBE_OURS = "name the right file, or, if the workflow made this one, delete it and run again"


def one_line(text: str) -> str:
    """Text of somebody else without line breaks; what a terminal would obey is written out."""
    words = " ".join(text.split())
    if words.isprintable():
        return words
    return "".join(
        sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in words
    )


def nearest(word: object, known: Iterable[object]) -> str:
    """``; did you mean 'x'?`` when one of the known words is close, else the known words."""
    words = [str(one) for one in known]
    close = get_close_matches(str(word), words, 1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(words)}" if words else ""


class BrioError(Exception):
    """A problem that the user can solve: one sentence with the culprit and the remedy."""

    def __init__(self, sentence: str) -> None:
        # Libraries, whose words may be part of it, break lines.
        super().__init__(one_line(sentence))
