"""One reader per kind of source, and what they share."""
