"""Train on a machine that has a GPU but no Snakemake, and take the results back."""
