#!/usr/bin/env bash
# Runs suites one after the other, stops at the first that fails, and says what each took and what its runners counted.
# Usage: suites.sh SUITE…, each a target of the Makefile.
set -euo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
times=() totals=()
for suite in "$@"; do
  echo "== make $suite"
  SECONDS=0 status=0
  "${MAKE:-make}" --no-print-directory "$suite" 2>&1 | tee "$log" || status=$?
  times+=("$(printf '%-14s %2d:%02d' "$suite" $((SECONDS / 60)) $((SECONDS % 60)))")
  if ((status)); then
    printf '%s\n' "${times[@]}"
    echo "make $suite failed" >&2
    exit "$status"
  fi
  # cargo's runner has a line for each crate, pytest one for all.
  mapfile -t -O "${#totals[@]}" totals < <(awk '
    /^test result:/ { passed += $4; failed += $6; ignored += $8; runs++ }
    !/^test / && / in [0-9.]+s( \([0-9:]+\))?$/ && / passed/ { print }
    /^unsteady, passed alone: / { print }
    END {
      if (runs) printf "cargo test: %d passed; %d failed; %d ignored, in %d binaries\n", passed, failed, ignored, runs
    }' "$log")
done
printf '%s\n' '== time of each suite (min:s)' "${times[@]}" '== totals' "${totals[@]}"
