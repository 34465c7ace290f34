#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of the tree that no compiler knows: lint.py [ROOT] prints one line a finding.

docs/CONTRIBUTING.md says what the rules are for. Each rule is a function that yields findings; the
self test seeds one defect a rule and sees it reported.
"""

import pathlib
import re
import sys
from typing import Iterator, NamedTuple

# Each layer may include those before it, and itself.
LAYERS = ["base", "device", "retention", "staging", "checkpoint", "streaming", "components"]
# Beside the list: what they may include besides themselves.
SIDE_LAYERS = {"warm_up": LAYERS, "observe": ["base"], "testing": LAYERS + ["warm_up", "observe"],
               "tools": LAYERS + ["warm_up", "observe", "testing"]}

TOP_LEVEL = {"CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md",
             "cmake", "docs", "examples", "include", "src", "tests"}
# Folders of tests/ that mirror no layer.
OTHER_TESTS = {"bench", "contract", "docs", "examples", "fault", "gpu", "lint", "models",
               "package", "sim", "support"}

# Headers without a test of their name, and why.
NO_TEST = {
    "offstage.hpp": "the umbrella: only includes, compiled by the cost check",
    "base/config.hpp": "macros that every other test uses",
    "base/version.hpp": "three numbers; CMake and the package tests read them",
    "base/event_sink.hpp": "one pure virtual function; tested with event.hpp",
    "components/placement.hpp": "plain values; what they come out as is in component_policy_test",
    "device/capture_probe.hpp": "the interface; pinned_module_stager_audit_test.cpp calls it",
    "device/device_module.hpp": "the interface; tested with module_telemetry.hpp, which calls it",
    "device/telemetry_backend.hpp": "the interface; each backend is tested under its own name",
    "observe/log_level.hpp": "an enum; log_sink_test.cpp has each value's lines",
    "retention/retention_state.hpp": "two numbers; staged_bytes_token_test.cpp and "
                                     "bounded_allocator_cache_learned_test.cpp follow them",
    "staging/edit_policy.hpp": "an enum; each value has its tests in "
                               "pinned_module_stager_edits_test.cpp",
    "staging/stageable.hpp": "the interface; tested with component.hpp, which calls it",
}
# Tests without a header of their name, and why.
NO_HEADER = {
    "device/npu_telemetry": "the whole way to an npu device: registry, module and cache together",
}
# Public headers that the umbrella leaves out, and why (testing/ is left out as a whole).
NOT_IN_UMBRELLA = {
    "device/cuda_telemetry.hpp": "belongs to offstage::cuda, which not every LibTorch can have",
    "observe/log_level.hpp": "belongs to offstage::log, as the next",
    "observe/log_sink.hpp": "belongs to offstage::log, which needs spdlog",
    "staging/script_module.hpp": "belongs to offstage::torchscript, which not every program links",
}

HEAVY = re.compile(
    r"(torch/(torch|script|library|all|types)\.h|torch/nn|torch/csrc/|ATen/(ATen|Functions)\.h"
    r"|ATen/ops/(?!\w+_ops\.h)|nlohmann/|spdlog/|fmt/)")
LINES_MAX = 400
CODE = {".hpp", ".cpp", ".py", ".cmake"}
SCRIPTS = {"cmake/dev", ".ci/run"}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')

# Written in pieces, so that this file does not find itself.
BANNED = [
    (re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b"), "", "say it in the change, or do it"),
    (re.compile(r"\b(sleep" r"_for|sleep" r"_until|u" r"sleep|nano" r"sleep)\b"), "",
     "wait for the thing itself: a latch, an event, a manual clock"),
    (re.compile(r"\bGTEST" r"_SKIP\b"), "", "a skipped test looks green: do not build it instead"),
    (re.compile(r"\bstd::(cout|cerr|clog)\b|\bprintf\s*\("), "include src",
     "the library does not print: send an event to the sink"),
    (re.compile(r"\bcuda" r"(Malloc|Free)\w*\s*\("), "include src",
     "device memory comes from LibTorch's allocator"),
    (re.compile(r"\busing namespace\b"), "include", "it would reach into every user's file"),
]


class Finding(NamedTuple):
    rule: str
    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: [{self.rule}] {self.text}"


class Tree:
    """The files of a source tree, without build trees, caches and version control."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.entries = sorted(p.name for p in root.iterdir() if not self._ignored(p.name))
        self.files = sorted(
            p.relative_to(root).as_posix()
            for entry in self.entries if entry != ".git"
            for p in self._walk(root / entry))

    @staticmethod
    def _ignored(name: str) -> bool:
        return (name == "build" or name.startswith("build-") or name == "__pycache__"
                or name in {"compile_commands.json", "CMakeUserPresets.json", ".venv", ".cache"})

    def _walk(self, path: pathlib.Path) -> Iterator[pathlib.Path]:
        if path.is_file():
            yield path
        elif path.is_dir():
            for child in path.iterdir():
                if not self._ignored(child.name):
                    yield from self._walk(child)

    def text(self, path: str) -> str:
        return (self.root / path).read_bytes().decode("utf-8")  # keeps carriage returns

    def lines(self, path: str) -> list[str]:
        return self.text(path).split("\n")

    def code(self) -> list[str]:
        return [f for f in self.files if pathlib.PurePath(f).suffix in CODE
                or f in SCRIPTS or f.endswith("CMakeLists.txt")]

    def cxx(self) -> list[str]:
        return [f for f in self.files if f.endswith((".hpp", ".cpp"))]

    def headers(self) -> list[str]:
        """Public headers, relative to include/offstage."""
        prefix = "include/offstage/"
        return [f[len(prefix):] for f in self.files if f.startswith(prefix) and f.endswith(".hpp")]


def check_top_level(tree: Tree) -> Iterator[Finding]:
    present = {e for e in tree.entries if not e.startswith(".")}
    for name in sorted(present - TOP_LEVEL):
        yield Finding("top-level", name, 0, "does not belong at the top level")
    for name in sorted(TOP_LEVEL - present):
        yield Finding("top-level", name, 0, "is missing at the top level")


def check_layers(tree: Tree) -> Iterator[Finding]:
    for path in tree.cxx():
        match = re.match(r"(?:include/offstage|src)/(\w+)/", path)
        if not match:
            continue
        layer = match[1]
        if layer in SIDE_LAYERS:
            allowed = {layer, *SIDE_LAYERS[layer]}
        elif layer in LAYERS:
            allowed = set(LAYERS[:LAYERS.index(layer) + 1])
        else:
            yield Finding("layers", path, 0, f"'{layer}' is no layer")
            continue
        for number, line in enumerate(tree.lines(path), 1):
            include = INCLUDE.match(line)
            if include and include[1].startswith("offstage/"):
                target = include[1].split("/")[1]
                if target not in allowed:
                    yield Finding("layers", path, number, f"{layer}/ may not include {include[1]}")


def check_mirror(tree: Tree) -> Iterator[Finding]:
    """x.hpp has x_test.cpp, or several x_aspect_test.cpp; and each test has its x.hpp or x.cpp."""
    headers = set(tree.headers())
    files = set(tree.files)
    for header in sorted(headers - set(NO_TEST)):
        stem = header[:-len(".hpp")]
        if not any(re.fullmatch(rf"tests/{stem}(_\w+)?_test\.cpp", f) for f in tree.files):
            yield Finding("mirror", f"include/offstage/{header}", 0,
                          f"has no test tests/{stem}_test.cpp")
    for name, table in [("NO_TEST", set(NO_TEST)), ("NOT_IN_UMBRELLA", set(NOT_IN_UMBRELLA))]:
        for header in sorted(table - headers):
            yield Finding("mirror", f"include/offstage/{header}", 0, f"{name} names no header")
    for path in tree.files:
        match = re.match(r"tests/(\w+)/(.+)_test\.cpp$", path)
        if not match or match[1] in OTHER_TESTS:
            continue
        words = match[2].split("_")
        names = [f"{match[1]}/{'_'.join(words[:n])}" for n in range(1, len(words) + 1)]
        if names[-1] not in NO_HEADER and not any(
                f"{n}.hpp" in headers or f"src/{n}.cpp" in files for n in names):
            yield Finding("mirror", path, 0, f"tests no include/offstage/{names[-1]}.hpp")


def check_heavy_includes(tree: Tree) -> Iterator[Finding]:
    for header in tree.headers():
        if header.startswith("testing/"):
            continue
        path = f"include/offstage/{header}"
        for number, line in enumerate(tree.lines(path), 1):
            include = INCLUDE.match(line)
            if include and HEAVY.match(include[1]):
                yield Finding("heavy-include", path, number,
                              f"{include[1]} costs every user's file seconds")


def check_umbrella(tree: Tree) -> Iterator[Finding]:
    path = "include/offstage/offstage.hpp"
    if path not in tree.files:
        yield Finding("umbrella", path, 0, "is missing")
        return
    included = {m[1] for m in map(INCLUDE.match, tree.lines(path)) if m}
    wanted = {f"offstage/{h}" for h in tree.headers() if not h.startswith("testing/")
              and h not in NOT_IN_UMBRELLA and h != "offstage.hpp"}
    for name in sorted(wanted - included):
        yield Finding("umbrella", path, 0, f"does not include <{name}>")
    for name in sorted(included - wanted):
        yield Finding("umbrella", path, 0, f"includes <{name}>, which does not belong there")


def check_head(tree: Tree) -> Iterator[Finding]:
    for path in tree.code():
        if path.endswith((".cmake", ".txt")):
            continue
        lines = tree.lines(path)
        if not any("SPDX-License-Identifier: Apache-2.0" in line for line in lines[:3]):
            yield Finding("spdx", path, 1, "has no line SPDX-License-Identifier: Apache-2.0")
        if path.endswith(".hpp") and "#pragma once" not in lines[:3]:
            yield Finding("pragma-once", path, 1, "#pragma once must follow the licence line")


def check_text(tree: Tree) -> Iterator[Finding]:
    for path in tree.code():
        lines = tree.lines(path)
        if len(lines) - 1 > LINES_MAX:
            yield Finding("long-file", path, len(lines) - 1, f"is longer than {LINES_MAX} lines")
        if lines[-1] != "":
            yield Finding("whitespace", path, len(lines), "does not end with a newline")
        for number, line in enumerate(lines, 1):
            if "\t" in line or "\r" in line or line != line.rstrip():
                yield Finding("whitespace", path, number, "tab, carriage return or trailing space")
            for pattern, folders, instead in BANNED:
                if folders and path.split("/")[0] not in folders.split():
                    continue
                found = pattern.search(line)
                if found:
                    yield Finding("banned", path, number, f"'{found[0]}': {instead}")


def check_listed(tree: Tree) -> Iterator[Finding]:
    for path in tree.files:
        pure = pathlib.PurePosixPath(path)
        if pure.suffix != ".cpp" or pure.parts[0] not in {"src", "tests", "examples"}:
            continue
        lists = [str(p / "CMakeLists.txt") for p in pure.parents]
        if not any(f in tree.files and re.search(rf"\b{re.escape(pure.name)}\b", tree.text(f))
                   for f in lists):
            yield Finding("not-built", path, 0, "no CMakeLists.txt above it names it")


RULES = [check_top_level, check_layers, check_mirror, check_heavy_includes, check_umbrella,
         check_head, check_text, check_listed]


def check(root: pathlib.Path) -> list[Finding]:
    tree = Tree(root)
    return [finding for rule in RULES for finding in rule(tree)]


def main() -> int:
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    findings = check(root)
    for finding in findings:
        print(finding)
    print(f"{len(Tree(root).files)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
