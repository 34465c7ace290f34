#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the table of docs/staging.md: staging_table.py STAGING_COST

Runs the program twice: as it is, for the counts of the simulated device, and under callgrind, for
the instructions of one cycle.
"""

import csv
import pathlib
import re
import subprocess
import sys
import tempfile

COUNTS = ["allocations", "copies", "records", "stream waits", "host waits"]


def counts(program: str) -> dict:
    output = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return {(row["scheme"], int(row["tensors"])): row for row in csv.DictReader(output.splitlines())}


def instructions(program: str) -> dict:
    """Instructions of one cycle, by scheme and number of tensors."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["valgrind", "--tool=callgrind", "--instr-atstart=no",
                        f"--callgrind-out-file={folder}/out", program, "--cycles"],
                       check=True, capture_output=True)
        for path in pathlib.Path(folder).iterdir():
            text = path.read_text(errors="replace")
            label = re.search(r"^desc: Trigger: Client Request: (.*),(\d+),(\d+)$", text, re.M)
            total = re.search(r"^(?:totals|summary): (\d+)", text, re.M)
            if label and total:
                scheme, tensors, cycles = label.groups()
                found[scheme, int(tensors)] = int(total.group(1)) // int(cycles)
    return found


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__.splitlines()[0])
    figures = instructions(sys.argv[1])
    print("| scheme | tensors | " + " | ".join(COUNTS) + " | instructions a tensor | relative |")
    print("|---|---|" + "---|" * (len(COUNTS) + 2))
    for (scheme, tensors), row in counts(sys.argv[1]).items():
        each = figures[scheme, tensors] / tensors
        ratio = figures[scheme, tensors] / figures["offstage", tensors]
        print(f"| {scheme} | {tensors} | " + " | ".join(row[name] for name in COUNTS) +
              f" | {each:.0f} | {ratio:.1f} |")


if __name__ == "__main__":
    main()
