"""`docs/security.md` promises nothing without a test that holds it."""

import re

PAGE = "docs/security.md"
# Fewer would mean that this reads the page, or the tests, wrongly.
PROMISES_MIN, TESTS_MIN = 25, 1500
TEST = re.compile(r"^\s*(?:def|(?:async )?fn) (\w+)\(", re.MULTILINE)


def test_each_promise_names_tests_that_exist(repository):
    text = (repository / PAGE).read_text()
    table = text.split("## What is promised", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("| ")][1:]
    tests = all_tests(repository)
    assert len(rows) >= PROMISES_MIN and len(tests) >= TESTS_MIN
    for promise, held_by in rows:
        names = [name for name in re.findall(r"`(\w+)`", held_by) if "_" in name]
        missing = [name for name in names if name not in tests]
        assert names and not missing, f"{promise.strip()}: {missing or 'no test'}"


def all_tests(repository):
    files = [*repository.glob("tests/interop/*.py"), *repository.glob("crates/*/src/**/*.rs")]
    files += repository.glob("crates/*/tests/**/*.rs")
    return {name for file in files for name in TEST.findall(file.read_text())}
