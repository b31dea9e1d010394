"""The synthetic cohort of the demo."""
