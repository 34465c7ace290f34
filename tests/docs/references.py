#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""references.py ROOT: links of the documents resolve, and the files and names in backticks exist.

Checked are README.md, docs/*.md and the README of each example. A name is looked for in the
sources: one with a capital and a small letter (`PinnedModuleStager`), a call (`use_on()`), a member
(`Simulator::install`), a constant of our own (`OFFSTAGE_LIBTORCH`). A block of code behind the line
`<!-- from FILE -->` must be in that file, word for word.
"""

import pathlib
import re
import sys

SOURCES = ["include", "src", "cmake", "examples", "tests"]
SUFFIXES = {".hpp", ".cpp", ".cmake", ".txt", ".py", ".json", ".in", ""}
# Names of others.
FOREIGN = re.compile(r"^(c10|at|torch|std|ATen|CMAKE_|CCACHE_|Torch_)|"
                     r"^(Debug|Release|PrivateUse1|InferenceMode|GoogleTest|TorchScript)$")


def documents(root: pathlib.Path) -> list[pathlib.Path]:
    return [root / "README.md", *sorted((root / "docs").rglob("*.md")),
            *sorted((root / "examples").rglob("*.md"))]


def anchors(text: str) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-") for head in heads}


def words_of(root: pathlib.Path) -> set[str]:
    words: set[str] = set()
    for folder in SOURCES:
        for file in (root / folder).rglob("*"):
            if file.is_file() and file.suffix in SUFFIXES and "__pycache__" not in file.parts:
                words.update(re.findall(r"\w+", file.read_text(encoding="utf-8")))
    words.update(re.findall(r"\w+", (root / "CMakeLists.txt").read_text(encoding="utf-8")))
    return words


def is_name(code: str) -> bool:
    if FOREIGN.match(code):
        return False
    return bool(re.fullmatch(r"(\w+::)*\w+(\(\))?", code)
                and (re.search(r"[A-Z].*[a-z]", code) or "::" in code or code.endswith("()")
                     or code.startswith("OFFSTAGE_")))


def check(root: pathlib.Path) -> list[str]:
    words = words_of(root)
    wrong = []
    for document in documents(root):
        text = document.read_text(encoding="utf-8")
        name = document.relative_to(root).as_posix()
        prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"\]\(([^)\s]+)\)", prose):
            path, _, anchor = link.partition("#")
            if re.match(r"\w+:", path):
                continue
            target = document.parent / path if path else document
            if not target.exists():
                wrong.append(f"{name}: the link {link} leads nowhere")
            elif anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
                wrong.append(f"{name}: {path or name} has no heading for #{anchor}")
        for source, block in re.findall(r"^<!-- from (\S+) -->\n```\w*\n(.*?)^```$", text,
                                        re.MULTILINE | re.DOTALL):
            if not (root / source).exists():
                wrong.append(f"{name}: there is no {source}")
            elif block not in (root / source).read_text(encoding="utf-8"):
                wrong.append(f"{name}: {source} has no such code: {block.splitlines()[0]} ...")
        for code in re.findall(r"`([^`\n]+)`", prose):
            if re.match(r"(include|src|tests|cmake|docs|examples|\.ci)/[\w./]+$", code):
                if not (root / code).exists():
                    wrong.append(f"{name}: there is no {code}")
            elif is_name(code):
                for word in re.findall(r"\w+", code):
                    if word not in words:
                        wrong.append(f"{name}: `{code}` is not in the sources")
                        break
    return wrong


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    wrong = check(root)
    print("\n".join(wrong) or f"{len(documents(root))} documents")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
