"""CORE, reimplemented from its abstract: edges that sites agree on, as nodes of a line graph."""
