"""Decide who is kept and write participants.tsv, inclusion.tsv, regions.tsv and series.h5."""

import argparse
import sys
from pathlib import Path

from brio_core.system.cli import json_argument, run


def main() -> None:
    """Apply the exclusion rules and write the kept scans in the order of the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", type=json_argument, required=True, help="the dataset as JSON")
    parser.add_argument("--data-dir", required=True, help="the folder of all cohorts")
    parser.add_argument("--candidates", required=True, help="candidates.tsv")
    parser.add_argument("--parts", nargs="+", required=True, help="what extract wrote")
    parser.add_argument("--on-bad-subject", choices=("exclude", "stop"), default="exclude")
    parser.add_argument("--participants", required=True, help="participants.tsv to write")
    parser.add_argument("--inclusion", required=True, help="inclusion.tsv to write")
    parser.add_argument("--regions", required=True, help="regions.tsv to write")
    parser.add_argument("--series", required=True, help="series.h5 to write")
    parser.add_argument("--checksums", help="JSON to write last: what training follows")
    arguments = parser.parse_args()

    from importlib.metadata import version

    import numpy as np

    from brio_core import __version__
    from brio_core.cohorts import dead_regions, inclusion
    from brio_core.cohorts.candidates import read_candidates
    from brio_core.cohorts.cohort import PARTICIPANT_COLUMNS
    from brio_core.cohorts.dead_regions import DeadRegions
    from brio_core.cohorts.duplicates import Sketches
    from brio_core.cohorts.extraction import ExtractedScans, joint_checksum
    from brio_core.cohorts.readers.reader import open_reader
    from brio_core.cohorts.stores import checksum, write_series
    from brio_core.cohorts.tables import refuse_formula, write_table
    from brio_core.system.files import write_json
    from brio_core.system.versions import value_version

    dataset = arguments.dataset
    cohort = dataset["cohort"]
    reader = open_reader(dataset, arguments.data_dir)
    candidates = read_candidates(arguments.candidates)
    scans = ExtractedScans(arguments.parts)
    outcomes = [scans.outcome(candidate["subject"]) for candidate in candidates]
    rules = inclusion.Rules.of(dataset)
    sketches = Sketches(rules.rois)
    for outcome in outcomes:
        if not inclusion.scan_reason(outcome, rules):
            sketches.add(outcome.subject, scans.series(outcome.subject))
    reasons = inclusion.exclusion_reasons(candidates, outcomes, rules, sketches)

    print(inclusion.summary(candidates, reasons, cohort), file=sys.stderr)
    if arguments.on_bad_subject == "stop":
        inclusion.stop_if_bad(reasons, cohort)
    inclusion.check_enough(candidates, reasons, cohort)

    kept = [candidate for candidate in candidates if not reasons[candidate["subject"]]]
    kept.sort(key=lambda candidate: (candidate["site"], candidate["subject"]))
    subjects = [candidate["subject"] for candidate in kept]
    used = [outcome for outcome in outcomes if not reasons[outcome.subject]]
    provenance = {
        "brio": __version__,
        "dataset": dataset,
        "source_sha256": joint_checksum(used),
        "units": reader.units,
        "versions": {name: version(name) for name in ("numpy", "scipy", "pandas", "h5py")},
        **reader.provenance(),
    }
    rois = reader.rois(next((outcome.names for outcome in used if outcome.names), ()))
    for name in rois.names:
        refuse_formula(name, f"the name of a region of cohort {cohort}")
    found = {outcome.subject: outcome.dead for outcome in used}
    regions = DeadRegions.of(kept, found, rois.names, rules.drop_regions, cohort)
    for note in regions.notes():
        print(note, file=sys.stderr)
    alive = np.flatnonzero(~regions.dropped)
    series = (scans.series(subject)[:, alive] for subject in subjects)
    write_series(arguments.series, subjects, series, rois.at(alive), provenance)
    write_table(arguments.regions, dead_regions.COLUMNS, regions.rows())
    rows = inclusion.inclusion_rows(candidates, outcomes, reasons)
    write_table(arguments.inclusion, inclusion.COLUMNS, rows)
    write_table(arguments.participants, PARTICIPANT_COLUMNS, kept)
    if arguments.checksums:
        files = {Path(path).name: path for path in (arguments.participants, arguments.series)}
        stated = {name: checksum(Path(path)) for name, path in files.items()}
        # As the workflow hands it over, so that it knows its own words again.
        stated["dataset"] = value_version(dataset)
        write_json(arguments.checksums, stated)


if __name__ == "__main__":
    run(main)
