"""BRIO: brain networks whose evidence holds within a scan and across sites."""

__version__ = "0.2.0"
