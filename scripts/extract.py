"""Read and clean the scans of one batch of candidates."""

import argparse

from brio_core.system.cli import json_argument, run


def main() -> None:
    """Write the series of every ``batches``-th candidate, or the reason why there is none."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", type=json_argument, required=True, help="the dataset as JSON")
    parser.add_argument("--data-dir", required=True, help="the folder of all cohorts")
    parser.add_argument("--candidates", required=True, help="candidates.tsv")
    parser.add_argument("--batch", type=int, required=True, help="number of this batch, from 0")
    parser.add_argument("--batches", type=int, required=True, help="number of batches")
    parser.add_argument("--out", required=True, help="HDF5 file to write")
    arguments = parser.parse_args()

    from brio_core.cohorts.candidates import read_candidates
    from brio_core.cohorts.extraction import extract_batch, write_batch
    from brio_core.cohorts.readers.reader import open_reader

    reader = open_reader(arguments.dataset, arguments.data_dir)
    batch = read_candidates(arguments.candidates)[arguments.batch :: arguments.batches]
    write_batch(arguments.out, extract_batch(reader, batch))


if __name__ == "__main__":
    run(main)
