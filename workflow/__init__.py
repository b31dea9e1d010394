"""A package with this file comes before modules called `workflow` that lie elsewhere."""
