#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the table of docs/retention.md: retention_table.py RETENTION_COST

Runs the program under callgrind, for the instructions of one decision.
"""

import sys

import staging_table


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__.splitlines()[0])
    figures = staging_table.instructions(sys.argv[1])
    queries = figures["two queries", 1]
    print("| | instructions | relative |")
    print("|---|---|---|")
    for (scheme, _), count in sorted(figures.items(), key=lambda item: item[1]):
        print(f"| {scheme} | {count} | {count / queries:.2f} |")


if __name__ == "__main__":
    main()
