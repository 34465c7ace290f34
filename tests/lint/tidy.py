#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tidy.py --build BUILD [FILE...]: clang-tidy over the sources of the library and its light tests.

Heavy tests (those that include torch/torch.h or torch/nn) take minutes each and are left out; the
headers that they use are seen through the others. With files named, only those are looked at.
"""

import argparse
import concurrent.futures
import json
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEAVY = re.compile(r"#include <(torch/(torch|script|nn|csrc)|ATen/ATen\.h)")
LOCAL = re.compile(r'#include "([^"]+)"')
# Some headers of LibTorch instantiate a vector of an incomplete IValue; libstdc++ 12 lets g++ pass
# and stops clang, unless the type is complete before. It costs seconds, so only where it is needed.
INCOMPLETE = "incomplete type 'c10::IValue'"
IVALUE = ["--extra-arg=-include", "--extra-arg=ATen/core/ivalue.h"]


def is_heavy(file: pathlib.Path) -> bool:
    text = file.read_text(encoding="utf-8")
    beside = [file.parent / name for name in LOCAL.findall(text)]
    return bool(HEAVY.search(text)) or any(is_heavy(f) for f in beside if f.exists())


def files_to_check(build: pathlib.Path) -> list[str]:
    entries = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    found = set()
    for entry in entries:
        file = pathlib.Path(entry["file"])
        if not file.is_relative_to(ROOT):
            continue
        path = file.relative_to(ROOT).as_posix()
        if path.startswith("src/") or (path.startswith("tests/") and not is_heavy(file)):
            found.add(path)
    return sorted(found)


def check(program: str, build: pathlib.Path, path: str) -> tuple[str, int, float, str]:
    start = time.monotonic()
    command = [program, "--quiet", "-p", str(build), path]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if result.returncode and INCOMPLETE in result.stdout:
        result = subprocess.run(command + IVALUE, cwd=ROOT, capture_output=True, text=True,
                                check=False)
    # clang-tidy says on the error stream how many warnings of other people's headers it left out.
    output = result.stdout if result.returncode == 0 else result.stdout + result.stderr
    return path, result.returncode, time.monotonic() - start, output.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("files", nargs="*")
    arguments = parser.parse_args()
    program = shutil.which("clang-tidy-14")
    if not program:
        print("clang-tidy-14 is missing: apt-get install clang-tidy-14")
        return 1
    files = arguments.files or files_to_check(arguments.build)
    if not files:
        print(f"no source in {arguments.build}/compile_commands.json")
        return 1
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        jobs = [pool.submit(check, program, arguments.build, path) for path in files]
        for job in concurrent.futures.as_completed(jobs):
            path, code, seconds, output = job.result()
            failed += code != 0
            print(f"{'ok    ' if code == 0 else 'FAILED'} {path} {seconds:.0f} s", flush=True)
            if output:
                print(output, flush=True)
    print(f"{len(files)} files, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
