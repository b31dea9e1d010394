"""Regions of a parcellation: their volumes, names and places."""
