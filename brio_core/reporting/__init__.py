"""Tables, figures and the overview page, made from stored results and never from models."""
