"""Tables by subject: each is a function below ``@output``, which the catalogue reads."""
