"""Figures by what they show: each is a function below ``@output``, which the catalogue reads."""
