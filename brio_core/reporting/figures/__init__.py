"""One module per figure; each has ``OUTPUT``, which the catalogue reads, and ``draw``."""
