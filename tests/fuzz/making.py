"""Made-up mappings and damaged bytes, and how many of them a test tries."""

import copy

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from tiny import SOAK

MADE = []  # One entry for every made-up input.


def cases(number: int):
    """The same cases every time, others in each part of a soak; nothing is kept between runs."""
    limits = settings(
        max_examples=number,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    return (lambda test: seed(SOAK)(limits(test))) if SOAK else limits


WORDS = st.sampled_from([
    "", "all", "demo", "tiny", "gcn", "brio", "loso", "main", "../../etc/passwd", "=1+1",
    "{subject", "{subject.__class__}", "a\tb", "\x00", "é", "null", "-1", "1e999",
    "<script>", "n/a",
])  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 10**12), st.floats(), WORDS, st.text(max_size=8)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(WORDS, st.integers()), inner, max_size=3),
    ),
    max_leaves=6,
)


def places(value: object, path: tuple = ()) -> list[tuple]:
    """Every place in nested mappings and lists."""
    if isinstance(value, dict):
        inner = [place for key, item in value.items() for place in places(item, (*path, key))]
    elif isinstance(value, list):
        inner = [place for key, item in enumerate(value) for place in places(item, (*path, key))]
    else:
        inner = []
    return [*([path] if path else []), *inner]


@st.composite
def changed(draw, original: dict) -> dict:
    """A mapping with one to three places replaced, removed, or added to."""
    MADE.append(1)
    value = copy.deepcopy(original)
    for _ in range(draw(st.integers(1, 3))):
        found = places(value)
        if not found:
            return value
        *path, key = draw(st.sampled_from(found))
        parent = value
        for step in path:
            parent = parent[step]
        action = draw(st.sampled_from(["replace", "replace", "remove", "add"]))
        if action == "remove":
            del parent[key]
        elif action == "add" and isinstance(parent, dict):
            parent[draw(WORDS)] = draw(VALUES)
        else:
            parent[key] = draw(VALUES)
    return value


@st.composite
def damaged(draw, original: bytes) -> bytes:
    """Bytes that were cut off, overwritten, doubled or inserted."""
    MADE.append(1)
    content = bytearray(original)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, max(len(content) - 1, 0)))
        length = draw(st.sampled_from([1, 1, 4, 64, 1024]))
        action = draw(
            st.sampled_from(["cut", "overwrite", "overwrite", "remove", "insert", "zero"])
        )
        if action == "cut":
            del content[start:]
        elif action == "remove":
            del content[start : start + length]
        elif action == "zero":
            content[start : start + length] = bytes(min(length, len(content) - start))
        else:
            new = draw(st.binary(min_size=1, max_size=min(length, 64)))
            content[start : start + (len(new) if action == "overwrite" else 0)] = new
    return bytes(content)
