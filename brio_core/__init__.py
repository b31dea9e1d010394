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
- ``estimators``: the same methods for Python, in the manner of scikit-learn
- ``__main__``: the command ``brio``

``SiteClassifier``, ``unseen_site_scores``, ``load_demo`` and ``load_cohort`` come from
``estimators``, which is imported when one of them is asked for.
"""

import importlib
from typing import Any

__version__ = "0.2.0"
__all__ = ["SiteClassifier", "load_cohort", "load_demo", "unseen_site_scores"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("brio_core.estimators"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
