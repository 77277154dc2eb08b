#!/usr/bin/env bash
# Tests AVX-512's kernels on a processor that has AVX2 alone: their sources compiled over SIMDe's functions, the
# core's tests over them, and those Python tests of the kernels that hold each instruction set against torch. $SIMDE
# names the folder that holds simde/ (0.8.2 or later) if it is not among the system's; skipped where there is none.
# What it cannot show: the AVX-512 code that a compiler makes of the same sources, and its speed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

skip() {
  echo "avx512-check: skipped: $1"
  exit 0
}
folder=
for each in ${SIMDE:-/usr/include /usr/local/include}; do
  if [ -e "$each/simde/x86/avx512/dpbusd.h" ]; then folder=$each && break; fi
done
[ -n "$folder" ] || skip "no SIMDe found (https://github.com/simd-everywhere/simde; \$SIMDE names its folder)"
grep -qw avx2 /proc/cpuinfo || skip "SIMDe's functions are compiled to AVX2, which this processor has not"

root=$(pwd -P)
work=$root/build/native/avx512
# Tests and module in one build: the emulated sources take minutes to compile.
.venv/bin/cmake -S native -B "$work" -G Ninja -DCMAKE_MAKE_PROGRAM="$root/.venv/bin/ninja" -DCMAKE_BUILD_TYPE=Release \
  -DPython_EXECUTABLE="$root/.venv/bin/python" -DTANDEM_SIMDE="$folder" -DTANDEM_NATIVE_TESTS=ON -DTANDEM_NATIVE_MODULE=ON \
  >/dev/null
.venv/bin/cmake --build "$work"
.venv/bin/ctest --test-dir "$work" --output-on-failure --timeout 900

# The package with another module: links to its files, beside the module that was just built.
rm -rf "$work/package" && mkdir -p "$work/package"
cp -rs "$root/src/tandem" "$work/package/"
rm -f "$work"/package/tandem/kernels/_native.*.so
cp "$work"/_native.*.so "$work/package/tandem/kernels/"
OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 .venv/bin/python -m pytest -q -o pythonpath="$work/package ." \
  tests/unit/native tests/property/test_native_attention.py tests/property/test_native_linear.py -k avx512
