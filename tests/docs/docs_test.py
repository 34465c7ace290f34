#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The checks of the documents report what they should."""

import pathlib
import sys
import tempfile
import unittest

import readme
import references

README = "# offstage\n\n```cpp\nint main() {}\n```\n\n```text\nhello\n```\n"


class ReadmeTest(unittest.TestCase):
    def check(self, text: str = README, source: str = "int main() {}\n",
              expected: str = "hello\n", printed: str = "hello\n") -> int:
        return len(readme.check(text, source, expected, printed))

    def test_agreement(self) -> None:
        self.assertEqual(self.check(), 0)

    def test_another_program(self) -> None:
        self.assertEqual(self.check(source="int main() { return 1; }\n"), 1)

    def test_no_program(self) -> None:
        self.assertEqual(self.check(text="# offstage\n"), 2)

    def test_a_program_too_far_down(self) -> None:
        self.assertEqual(self.check(text="\n" * 35 + README), 0)
        self.assertEqual(self.check(text="\n" * 36 + README), 1)

    def test_another_output(self) -> None:
        self.assertEqual(self.check(expected="bye\n", printed="bye\n"), 1)
        self.assertEqual(self.check(printed="bye\n"), 1)


class ReferencesTest(unittest.TestCase):
    def wrong(self, text: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in [*references.SOURCES, "docs"]:
                (root / name).mkdir()
            (root / "include/thing.hpp").write_text("class Thing { void go(); };\n")
            (root / "CMakeLists.txt").write_text("option(OFFSTAGE_THING)\n")
            (root / "docs/guide.md").write_text("# The guide\n")
            (root / "README.md").write_text(text)
            return references.check(root)

    def test_what_exists(self) -> None:
        self.assertEqual(self.wrong(
            "`Thing`, `Thing::go`, `go()`, `OFFSTAGE_THING`, `include/thing.hpp`, `c10::Device`, "
            "[guide](docs/guide.md#the-guide), [web](https://example.org)"), [])

    def test_what_does_not(self) -> None:
        for text in ["`Thingy`", "`Thing::stop`", "`stop()`", "`OFFSTAGE_OTHER`",
                     "`include/other.hpp`", "[guide](docs/other.md)", "[g](docs/guide.md#other)"]:
            with self.subTest(text):
                self.assertEqual(len(self.wrong(text)), 1)

    def test_code_blocks_are_left_alone(self) -> None:
        self.assertEqual(self.wrong("```sh\necho `Thingy`\n```\n"), [])

    def test_code_from_a_file_is_there_word_for_word(self) -> None:
        block = "<!-- from include/thing.hpp -->\n```cpp\nclass Thing {"
        self.assertEqual(self.wrong(block + " void go(); };\n```\n"), [])
        self.assertEqual(len(self.wrong(block + " int go(); };\n```\n")), 1)
        self.assertEqual(len(self.wrong("<!-- from include/no.hpp -->\n```cpp\n```\n")), 1)


if __name__ == "__main__":
    sys.exit(unittest.main())
