"""One module per table; each has ``OUTPUT``, which the catalogue reads, and ``make``."""
