"""From files to a cohort: readers, atlases, inclusion, stores, splits, site profiles."""
