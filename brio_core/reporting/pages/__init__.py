"""Pages: documents that are filled in from tables, and the overview of a run."""
