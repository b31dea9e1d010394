"""Layers that two methods or more share."""
