"""l2 logistic regression on Fisher-z FC: what every method has to be compared with."""

from brio_core.linear import StandardisedEdges


class LinearCorrelation(StandardisedEdges):
    """Standardised upper-triangle edges and one weight per edge."""

    name = "linear-correlation"
