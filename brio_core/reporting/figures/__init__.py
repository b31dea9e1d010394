"""One module per figure; each has ``draw``, which reads files and writes a PDF and a PNG."""
