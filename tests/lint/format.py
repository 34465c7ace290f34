#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""format.py ROOT CLANG_FORMAT: fails for every C++ file that clang-format would change."""

import pathlib
import shutil
import subprocess
import sys

import lint


def main() -> int:
    root, program = pathlib.Path(sys.argv[1]), sys.argv[2]
    if not shutil.which(program):
        print("clang-format-14 is missing: apt-get install clang-format-14")
        return 1
    files = lint.Tree(root).cxx()
    if not files:
        print(f"no C++ file in {root}")
        return 1
    result = subprocess.run([program, "--dry-run", "-Werror", *files], cwd=root, check=False)
    if result.returncode:
        print("repair: clang-format-14 -i FILE")
    print(f"{len(files)} files")
    return result.returncode


if __name__ == "__main__":
    sys.exit(main())
