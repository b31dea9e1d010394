"""BRIO: brain networks whose evidence holds within a scan and across sites.

Each room imports from the rooms above it only, which ``tests/test_rooms.py`` checks:

- ``kernels``: fused GPU code of some layers
- ``system``: files, errors, signals, devices, threads, randomness, versions
- ``connectivity``: connectivity of a scan, its re-estimation, block length, graphs
- ``cohorts``: from raw files to series, matrices and folds
- ``methods``: the interface, one file or folder per method, layers that several share
- ``training``: one run, with all its folds
- ``evaluation``: scores, intervals, tests, diagnostics
- ``reporting``: tables, figures and pages
- ``remote``: training on a machine without the workflow
"""

__version__ = "0.2.0"
