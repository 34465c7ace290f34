#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""readme.py ROOT PROGRAM: the README shows the example's text, and what the example prints."""

import pathlib
import re
import subprocess
import sys

EXAMPLE = "examples/02_first_component"
LINES_MAX = 40


def check(readme: str, source: str, expected: str, printed: str) -> list[str]:
    """What is wrong, one sentence each."""
    wrong = []
    program = re.search(r"^```cpp\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    output = re.search(r"^```text\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    if not program or program[1] != source:
        wrong.append(f"the first ```cpp block of README.md is not {EXAMPLE}/main.cpp")
    elif readme[:program.end()].count("\n") + 1 > LINES_MAX:
        wrong.append(f"the program of README.md ends after line {LINES_MAX}")
    if not output or output[1] != expected:
        wrong.append(f"the first ```text block of README.md is not {EXAMPLE}/expected.txt")
    if printed != expected:
        wrong.append(f"the program printed\n{printed}instead of\n{expected}")
    return wrong


def main() -> int:
    root, program = pathlib.Path(sys.argv[1]), sys.argv[2]
    result = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=False)
    wrong = check(*((root / name).read_text(encoding="utf-8") for name in
                    ["README.md", f"{EXAMPLE}/main.cpp", f"{EXAMPLE}/expected.txt"]),
                  result.stdout)
    if result.returncode:
        wrong.append(f"{program} failed ({result.returncode})")
    print("\n".join(wrong) or "README.md and its program agree")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
