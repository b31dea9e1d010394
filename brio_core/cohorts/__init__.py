"""From files to a cohort.

A scan's way: ``candidates`` lists the subjects of a source's table, ``extraction`` reads the scans
of a batch of them with the source's reader (``readers``, which use ``atlases`` for images), and
``inclusion`` decides who is kept: ``duplicates`` finds copies of scans, ``dead_regions`` says which
regions the cohort goes without. ``stores`` keeps the series (series.h5) and their connectivity
(fc.h5), ``splits`` divides the subjects into folds. ``check`` walks the same way without writing.
"""

# A protocol: pairs of a patient and a control of one site who moved alike.
MATCHED = "loso-motion-matched"
# Another: the first fold alone, whose time and memory the paper reports.
ONE_FOLD = "loso-one-fold"
