"""Made-up inputs are counted."""

import pytest
from making import MADE
from tiny import cpu_seconds


@pytest.fixture(autouse=True)
def _counted(record_property):
    before, begun = len(MADE), cpu_seconds()
    yield
    record_property("inputs", len(MADE) - before)
    record_property("cpu_seconds", cpu_seconds() - begun)
