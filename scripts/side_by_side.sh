#!/usr/bin/env bash
# Runs tests side by side, and those that failed so once more, each alone: what depends on the load of the machine is told
# apart from what is broken, and is named.
# Usage: side_by_side.sh WORKERS DISTRIBUTION PYTEST…, with the distribution of pytest-xdist.
set -euo pipefail
cd "$(dirname "$0")/.."
# More failures than this are no accident of load.
unsteady_max=3
workers=$1 distribution=$2
shift 2
cache=$(mktemp -d)
# Tests that ran as another account have left files there.
trap 'rm -rf "$cache" 2>/dev/null || true' EXIT
status=0
# In the order that the tests have given themselves, the longest files first: by their numbers of tests, those of few and long tests would
# come last, and keep one worker busy while the others have ended.
"$@" -o cache_dir="$cache" -n "$workers" --dist "$distribution" --no-loadscope-reorder || status=$?
# 1 says that tests failed; anything else that they did not run.
((status == 1)) || exit "$status"
mapfile -t failed < <(python3 -c 'import json, sys; print(*json.load(open(sys.argv[1])), sep="\n")' "$cache/v/cache/lastfailed")
((${#failed[@]} <= unsteady_max)) || exit "$status"
echo "== failed beside other tests; once more alone:"
printf '%s\n' "${failed[@]}"
"$@" -o cache_dir="$cache" --last-failed --last-failed-no-failures none
echo "unsteady, passed alone: ${failed[*]}"
