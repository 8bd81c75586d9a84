#!/usr/bin/env bash
# Fuzzes every target, or those that are named, for FUZZ_SECONDS each (600). Inputs that told the fuzzer something new stay
# in fuzz/corpus/, and one that breaks a promise in fuzz/findings/; make it a test, then mend what it found.
# The compiler's own coverage counters do, so the stable toolchain builds it.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"
seconds=${FUZZ_SECONDS:-600}
host=$(rustc -vV | sed -n 's/^host: //p')
counters=(-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1)
# Naming the host keeps the counters out of build scripts.
RUSTFLAGS="${counters[*]}" cargo build --release --locked --quiet --target "$host"
binary=target/$host/release/penstock-fuzz
if (($# == 0)); then
  mapfile -t targets < <(grep -rhoP '^\s+name: "\K\w+' src/targets | sort)
  set -- "${targets[@]}"
fi
failed=()
for target in "$@"; do
  mkdir -p "corpus/$target" "findings/$target"
  log=findings/$target.log
  # Memory is bounded, too: an input of some kilobytes has no business with more than this.
  FUZZ_TARGET=$target "$binary" "corpus/$target" -max_total_time="$seconds" -max_len=16384 -timeout=10 -rss_limit_mb=1024 \
    -artifact_prefix="findings/$target/" -print_final_stats=1 >"$log" 2>&1 || failed+=("$target")
  printf '%-20s %12s executions  %6s features  %s\n' "$target" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" \
    "$(grep -oP 'ft: \K[0-9]+' "$log" | tail -1)" \
    "$([[ " ${failed[*]-} " == *" $target "* ]] && echo "FAILED, see fuzz/$log" || echo ok)"
done
((${#failed[@]} == 0))
