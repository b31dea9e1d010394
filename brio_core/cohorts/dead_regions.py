"""Regions without signal: where they are, and which of them the whole cohort goes without.

A region that is dead at nearly every subject of one site, and at none of another, tells the site.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from brio_core.cohorts.tables import did_you_mean
from brio_core.system.errors import BrioError

# ``drop_regions: auto`` drops a region that is dead in more than this share of all subjects, or of
# the subjects of one site.
MOST_OF_ALL, MOST_OF_A_SITE = 0.1, 0.5
COLUMNS = ("region", "kept", "site", "label", "subjects", "dead")
_NAMED = 5


@dataclass(frozen=True)
class DeadRegions:
    """Which regions are dead in which of the kept subjects, and what is dropped for that."""

    people: Sequence[dict]
    names: Sequence[str]
    dead: np.ndarray
    dropped: np.ndarray

    @classmethod
    def of(
        cls,
        kept: Sequence[dict],
        dead: Mapping[str, Sequence[int]],
        names: Sequence[str],
        rule: str | Sequence[str],
        cohort: str,
    ) -> "DeadRegions":
        """Judge by the places of every subject's dead regions; ``rule`` is ``drop_regions``."""
        is_dead = np.zeros((len(kept), len(names)), bool)
        for row, candidate in enumerate(kept):
            is_dead[row, list(dead[candidate["subject"]])] = True
        found = cls(kept, names, is_dead, np.zeros(len(names), bool))
        if rule == "auto":
            worst = [is_dead[rows].mean(axis=0) for rows in found._sites.values()]
            found.dropped[:] = is_dead.mean(axis=0) > MOST_OF_ALL
            found.dropped[:] |= np.max(worst, axis=0) > MOST_OF_A_SITE
        elif rule != "none":
            for name in rule:
                found.dropped[_places(str(name), names, cohort)] = True
        if len(names) - found.dropped.sum() < 2:
            raise BrioError(
                f"inclusion.drop_regions of cohort {cohort} leaves {(~found.dropped).sum()} of "
                f"{len(names)} regions; name those to drop, or write none"
            )
        return found

    @cached_property
    def _sites(self) -> dict[str, np.ndarray]:
        """Rows of every site."""
        site = np.array([candidate["site"] for candidate in self.people])
        return {name: np.flatnonzero(site == name) for name in sorted(set(site))}

    def rows(self) -> list[dict]:
        """The rows of regions.tsv: one per region, site and class.

        The region ``any`` counts the subjects with at least one dead region.
        """
        label = np.array([candidate["label"] for candidate in self.people])
        rows = []
        for site, members in self._sites.items():
            for value in ("1", "0"):
                here = members[label[members] == value]
                group = {"site": site, "label": value, "subjects": len(here)}
                affected = self.dead[here].any(axis=1).sum()
                rows.append({"region": "any", "kept": "n/a", **group, "dead": affected})
                counts = self.dead[here].sum(axis=0)
                for name, dropped, count in zip(self.names, self.dropped, counts):
                    kept = "no" if dropped else "yes"
                    rows.append({"region": name, "kept": kept, **group, "dead": count})
        return rows

    def notes(self) -> Iterator[str]:
        """Sentences on sites with dead regions, classes that differ, and regions that go."""
        for site, members in self._sites.items():
            affected = members[self.dead[members].any(axis=1)]
            if len(affected):
                classes = Counter(self.people[row]["label"] for row in affected)
                counts = self.dead[members].sum(axis=0)
                yield (
                    f"{len(affected)} of {len(members)} subjects of {site} "
                    f"({classes['1']} positive, {classes['0']} negative) have a region without "
                    f"signal: {_most(self.names, counts)}"
                )
        if self.dropped.any():
            counts = np.where(self.dropped, self.dead.sum(axis=0) + 1, 0)
            yield (
                f"{self.dropped.sum()} of {len(self.names)} regions are left out of all scans "
                f"(inclusion.drop_regions): {_most(self.names, counts, counted=False)}"
            )


def _most(names: Sequence[str], counts: np.ndarray, counted: bool = True) -> str:
    """The regions with the highest counts, the first ones by name."""
    order = [index for index in np.argsort(-counts, kind="stable") if counts[index]]
    named = [names[i] + (f" ({counts[i]} times)" if counted else "") for i in order[:_NAMED]]
    more = f" and {len(order) - _NAMED} more" if len(order) > _NAMED else ""
    return ", ".join(named) + more


def _places(name: str, names: Sequence[str], cohort: str) -> list[int]:
    """Where a name stands; atlases have regions of the same name."""
    if name not in names:
        hint = did_you_mean(name, names) or f"names are such as {names[0]!r}"
        raise BrioError(
            f"inclusion.drop_regions of cohort {cohort} has {name!r}, which is no region; {hint}"
        )
    return [place for place, known in enumerate(names) if known == name]
