"""Names that version 0.2 changed, so that whoever uses an old one is told the new one."""

# Keys of configuration files.
KEYS = {"cells": "runs", "settings": "hyperparameters", "foreign": "external"}

# Hyperparameters, in presets, variants and overrides.
HYPERPARAMETERS = {"subjects_per_cell": "subjects_per_site_class"}

STUDY = "moved to studies/abide-cc200: add --configfile studies/abide-cc200"
# Targets of the command line.
TARGETS = {
    "open-settings": f"{STUDY}/open-settings.yaml",
    "second-round": f"{STUDY}/open-settings.yaml",
    "confirmation": f"{STUDY}/config.yaml",
    "linear-inputs": f"{STUDY}/config.yaml",
    "handover": "renamed to 'remote'",
}
