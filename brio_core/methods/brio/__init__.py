"""BRIO: factors that are relevant and hold under re-estimation decide what is aligned."""
