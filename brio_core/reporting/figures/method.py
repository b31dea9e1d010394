"""Overview of BRIO: from one scan to qualified alignment of sites. A drawing, made of no data.

It lies in docs/images: ``method.pdf`` to be edited, and ``method.png`` as exported from it.
"""

from brio_core.reporting import plotting
from brio_core.reporting.given import Given
from brio_core.system.versions import ROOT

OUTPUT = {
    "page": "method",
    "title": "Overview of BRIO",
    "caption": "From one scan to qualified alignment of sites.",
    "reads": ["docs/images/method.*"],
}


def draw(given: Given) -> plotting.Drawing:
    """Four steps from left to right."""
    return plotting.Drawing(
        ROOT / "docs" / "images" / "method",
        "Drawing in four steps: re-estimation of connectivity within a scan, factorisation with "
        "shared maps, qualification by relevance and support, alignment of sites.",
        "Blocks of frames of a scan are drawn again to estimate its connectivity anew. A shared "
        "network and one map of regions turn every estimate into factors with the same index. A "
        "factor qualifies if it separates the classes (relevance) and if its contribution survives "
        "re-estimation at both sites of a pair (support); this decides which factors are aligned, "
        "and how strongly. Unseen sites need the full scan only.",
    )
