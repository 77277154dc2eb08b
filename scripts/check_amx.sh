#!/usr/bin/env bash
# Tests AMX's kernels on a processor that has AVX2 alone: the core's tests of linear maps, under sanitizers, and the
# Python tests of the kernels, over tiles that native/tests/emulated_tiles/immintrin.h computes as Intel's manual gives
# them. Then what the compiler makes of the same sources for AMX is looked through for the tiles' instructions. What it
# cannot show: that this code is right, and its speed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

skip() {
  echo "amx-check: skipped: $1"
  exit 0
}
[ "$(uname -m)" = x86_64 ] || skip "AMX is of x86-64"
grep -qw avx2 /proc/cpuinfo || skip "what stands beside the tiles is AVX2, which this processor has not"

root=$(pwd -P)
work=$root/build/native/amx
build() { # folder, targets, then options
  local folder=$1 targets=$2 && shift 2
  .venv/bin/cmake -S native -B "$folder" -G Ninja -DCMAKE_MAKE_PROGRAM="$root/.venv/bin/ninja" \
    -DPython_EXECUTABLE="$root/.venv/bin/python" "$@" >/dev/null
  .venv/bin/cmake --build "$folder" --target $targets
}
build "$work/tests" "linear_test linear_precision_test" -DTANDEM_EMULATE_TILES=ON -DTANDEM_NATIVE_TESTS=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DTANDEM_SANITIZE=address,undefined
.venv/bin/ctest --test-dir "$work/tests" --output-on-failure --timeout 900 -R '^linear'

# The package with another module: links to its files, beside the module that was just built.
build "$work/module" _native -DTANDEM_EMULATE_TILES=ON -DCMAKE_BUILD_TYPE=Release
rm -rf "$work/package" && mkdir -p "$work/package"
cp -rs "$root/src/tandem" "$work/package/"
rm -f "$work"/package/tandem/kernels/_native.*.so
cp "$work"/module/_native.*.so "$work/package/tandem/kernels/"
OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 .venv/bin/python -m pytest -q -o pythonpath="$work/package ." \
  tests/unit/native tests/property/test_native_linear.py -k amx

# As compiled for AMX: every instruction that the kernels are written with.
command -v objdump >/dev/null || skip "no objdump: what the compiler made of the sources was not looked at"
object=CMakeFiles/tandem_core.dir/src/linear_amx.cpp.o
build "$work/code" "$object" -DTANDEM_NATIVE_TESTS=ON -DCMAKE_BUILD_TYPE=Release
code=$(objdump -d --no-show-raw-insn "$work/code/$object")
for each in ldtilecfg tileloadd tdpbf16ps tilestored tilezero tilerelease; do
  count=$(grep -cw "$each" <<<"$code") || { echo "amx-check: the compiled kernels hold no $each" >&2 && exit 1; }
  echo "amx-check: $count x $each"
done
