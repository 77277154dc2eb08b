#!/usr/bin/env bash
# Lets clang's libFuzzer look for block tables that break attention, for $FUZZ_SECONDS (60): what it finds is
# left in build/native/fuzz as crash-*, to be given to the program again. Skipped where there is no clang.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

compiler=$(command -v ${FUZZ_CXX:-clang++ clang++-19 clang++-16 clang++-14} | head -n 1 || true)
work=$(pwd -P)/build/native/fuzz
mkdir -p "$work/corpus"
if [ -z "$compiler" ]; then
  echo "fuzz: skipped: no clang++ found (Debian: clang; \$FUZZ_CXX names another)"
  exit 0
fi
echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' >"$work/probe.cpp"
if ! "$compiler" -fsanitize=fuzzer "$work/probe.cpp" -o "$work/probe" 2>"$work/probe.txt"; then
  echo "fuzz: skipped: $compiler has no libFuzzer (Debian: libclang-rt-dev): $(head -n 1 "$work/probe.txt")"
  exit 0
fi
.venv/bin/cmake -S native -B "$work" -G Ninja -DCMAKE_MAKE_PROGRAM="$(pwd -P)/.venv/bin/ninja" \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTANDEM_FUZZ=ON \
  -DTANDEM_SANITIZE=address,undefined >/dev/null
.venv/bin/cmake --build "$work"
cd "$work"
./fuzz_block_tables -max_total_time="${FUZZ_SECONDS:-60}" -max_len=600 -print_final_stats=1 corpus
