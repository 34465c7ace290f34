#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Seeds one defect a rule into a copy of the tree, and sees exactly that one reported."""

import pathlib
import shutil
import sys
import tempfile
import unittest

import lint

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADER = "include/offstage/base/bytes.hpp"
SOURCE = "src/base/error.cpp"
TEST = "tests/base/bytes_test.cpp"
UMBRELLA = "include/offstage/offstage.hpp"


class LintTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory(prefix="offstage-lint-")
        cls.root = pathlib.Path(cls.folder.name)
        for path in lint.Tree(ROOT).files:
            (cls.root / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, cls.root / path)
        cls.before = set(lint.check(cls.root))

    @classmethod
    def tearDownClass(cls) -> None:
        cls.folder.cleanup()

    def new_findings(self) -> set[tuple[str, str]]:
        return {(f.rule, f.path) for f in lint.check(self.root) if f not in self.before}

    def assert_reports(self, path: str, text: str, *expected: tuple[str, str]) -> None:
        """`text` as the whole of the file at `path` makes lint report exactly `expected`."""
        file = self.root / path
        old = file.read_bytes() if file.exists() else None
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        try:
            self.assertEqual(self.new_findings(), set(expected))
        finally:
            if old is None:
                file.unlink()
            else:
                file.write_bytes(old)

    def assert_reports_added(self, path: str, line: str, *expected: tuple[str, str]) -> None:
        self.assert_reports(path, (self.root / path).read_text(encoding="utf-8") + line + "\n",
                            *expected)

    def test_the_tree_itself_is_clean(self) -> None:
        self.assertEqual([str(f) for f in sorted(self.before)], [])

    def test_a_stray_file_at_the_top(self) -> None:
        self.assert_reports("notes.txt", "x\n", ("top-level", "notes.txt"))

    def test_a_missing_file_at_the_top(self) -> None:
        file = self.root / "LICENSE"
        text = file.read_bytes()
        file.unlink()
        self.assertEqual(self.new_findings(), {("top-level", "LICENSE")})
        file.write_bytes(text)

    def test_an_include_against_the_arrows(self) -> None:
        include = "#include <offstage/device/host_memory.hpp>"
        self.assert_reports_added(HEADER, include, ("layers", HEADER))
        self.assert_reports_added(SOURCE, include, ("layers", SOURCE))

    def test_the_doubles_included_by_the_library(self) -> None:
        path = "src/device/host_memory.cpp"
        self.assert_reports_added(path, "#include <offstage/testing/any.hpp>", ("layers", path))

    def test_an_unknown_layer(self) -> None:
        path = "include/offstage/misc/thing.hpp"
        self.assert_reports(
            path, "// SPDX-License-Identifier: Apache-2.0\n#pragma once\n",
            ("layers", path), ("mirror", path), ("umbrella", UMBRELLA))

    def test_a_header_without_a_test(self) -> None:
        path = "include/offstage/base/untested.hpp"
        self.assert_reports(path, "// SPDX-License-Identifier: Apache-2.0\n#pragma once\n",
                            ("mirror", path), ("umbrella", UMBRELLA))

    def test_a_test_without_a_header(self) -> None:
        path = "tests/base/nothing_test.cpp"
        self.assert_reports(path, "// SPDX-License-Identifier: Apache-2.0\n",
                            ("mirror", path), ("not-built", path))

    def test_heavy_includes_in_a_public_header(self) -> None:
        for name in ["torch/torch.h", "torch/nn/module.h", "torch/csrc/autograd/variable.h",
                     "ATen/ATen.h", "ATen/ops/empty.h", "nlohmann/json.hpp", "spdlog/spdlog.h",
                     "fmt/format.h"]:
            with self.subTest(name):
                self.assert_reports_added(HEADER, f"#include <{name}>", ("heavy-include", HEADER))

    def test_light_includes_in_a_public_header_are_fine(self) -> None:
        for name in ["ATen/core/Tensor.h", "ATen/ops/empty_strided_ops.h", "c10/core/Event.h"]:
            with self.subTest(name):
                self.assert_reports_added(HEADER, f"#include <{name}>")

    def test_an_umbrella_that_brings_in_the_doubles(self) -> None:
        self.assert_reports_added(UMBRELLA, "#include <offstage/testing/any.hpp>",
                                  ("umbrella", UMBRELLA))

    def test_a_missing_licence_line(self) -> None:
        self.assert_reports(SOURCE, "int x;\n", ("spdx", SOURCE))

    def test_a_missing_pragma_once(self) -> None:
        self.assert_reports(HEADER, "// SPDX-License-Identifier: Apache-2.0\n",
                            ("pragma-once", HEADER))

    def test_a_long_file(self) -> None:
        text = (self.root / SOURCE).read_text(encoding="utf-8")
        length = text.count("\n")
        self.assert_reports(SOURCE, text + "//\n" * (lint.LINES_MAX - length))
        self.assert_reports(SOURCE, text + "//\n" * (lint.LINES_MAX + 1 - length),
                            ("long-file", SOURCE))

    def test_white_space(self) -> None:
        for line in ["\tint x;", "int x; ", "int x;\r"]:
            with self.subTest(line):
                self.assert_reports_added(SOURCE, line, ("whitespace", SOURCE))
        self.assert_reports(SOURCE, "// SPDX-License-Identifier: Apache-2.0\nint x;",
                            ("whitespace", SOURCE))

    def test_banned_words_everywhere(self) -> None:
        for word in ["// TO" "DO: later", "// FIX" "ME", "std::this_thread::sleep" "_for(1s);",
                     'GTEST' '_SKIP() << "no device";']:
            with self.subTest(word):
                self.assert_reports_added(TEST, word, ("banned", TEST))

    def test_words_banned_in_the_library(self) -> None:
        for word in ['std::cout << "x";', 'std::printf("x");', "cuda" "Malloc(&p, 1);"]:
            with self.subTest(word):
                self.assert_reports_added(SOURCE, word, ("banned", SOURCE))
        self.assert_reports_added(TEST, 'std::cout << "x";')

    def test_a_source_that_no_list_names(self) -> None:
        path = "src/base/forgotten.cpp"
        self.assert_reports(path, "// SPDX-License-Identifier: Apache-2.0\n", ("not-built", path))


if __name__ == "__main__":
    sys.exit(unittest.main())
