"""Ridge regression on the matrix logarithm of the shrunk correlation.

The logarithm makes correlations that multiply add up. Every site and class weighs the same, and all
source sites train; an inner leave-one-site-out over them chooses the penalty.
"""

from brio_core.methods.linear.ridge import Ridge


class LinearLogarithm(Ridge):
    """The plain ridge row; its hyperparameters name the kind of connectivity."""

    name = "linear-logarithm"
