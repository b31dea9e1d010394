"""FC-HGNN: a graph of every brain, and a graph of the population of subjects."""
