#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What one header costs a file that includes it, as a multiple of what another one costs.

User time of -fsyntax-only, the two taken in turn, the median of three each: seconds differ from
machine to machine, the ratio does not.
"""

import argparse
import os
import statistics
import subprocess
import sys


def user_seconds(command: list[str], header: str) -> float:
    before = os.times().children_user
    subprocess.run(command, input=f"#include <{header}>\n", text=True, check=True)
    return os.times().children_user - before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ["compiler", "include", "libtorch", "header", "base"]:
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--at-most", type=float, required=True)
    arguments = parser.parse_args()

    command = [arguments.compiler, "-std=c++20", "-fsyntax-only", "-x", "c++",
               "-I", arguments.include, "-isystem", f"{arguments.libtorch}/include",
               "-isystem", f"{arguments.libtorch}/include/torch/csrc/api/include", "-"]
    seconds: dict[str, list[float]] = {arguments.base: [], arguments.header: []}
    for _ in range(3):
        for header, times in seconds.items():
            times.append(user_seconds(command, header))
    base = statistics.median(seconds[arguments.base])
    header = statistics.median(seconds[arguments.header])
    print(f"{arguments.base} {base:.2f} s, {arguments.header} {header:.2f} s, "
          f"ratio {header / base:.2f}, at most {arguments.at_most}")
    return 0 if header <= arguments.at_most * base else 1


if __name__ == "__main__":
    sys.exit(main())
