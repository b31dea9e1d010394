"""The methods of the comparison; :mod:`brio_core.methods.registry` finds them by name."""
