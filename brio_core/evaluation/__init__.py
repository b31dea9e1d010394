"""Scores, intervals, tests and calibration, from stored predictions."""
