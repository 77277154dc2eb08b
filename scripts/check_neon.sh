#!/usr/bin/env bash
# Compiles the core of the CPU kernels for AArch64 with clang from the package registry, and runs its tests
# where an emulator is at hand (qemu-aarch64 or qemu-aarch64-static; $QEMU names another).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

work=$(pwd -P)/build/neon
[ -x "$work/tools/bin/python" ] || "${PYTHON:-python3}" -m venv "$work/tools"
"$work/tools/bin/python" -m pip install --disable-pip-version-check --quiet -c constraints.txt ziglang cmake ninja
printf '#!/bin/sh\nexec "%s" -m ziglang c++ -target aarch64-linux-musl -static "$@"\n' \
  "$work/tools/bin/python" >"$work/c++"
chmod +x "$work/c++"

emulator=$(command -v ${QEMU:-qemu-aarch64-static qemu-aarch64} | head -n 1 || true)
cmake=$work/tools/bin/cmake
"$cmake" -S native -B "$work/tests" -G Ninja -DCMAKE_MAKE_PROGRAM="$work/tools/bin/ninja" \
  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER="$work/c++" \
  -DCMAKE_CROSSCOMPILING_EMULATOR="$emulator" -DCMAKE_BUILD_TYPE=Release -DTANDEM_NATIVE_TESTS=ON >/dev/null
"$cmake" --build "$work/tests"
if [ -n "$emulator" ]; then
  "$work/tools/bin/ctest" --test-dir "$work/tests" --output-on-failure --timeout 600
else
  echo "compiled for AArch64, but not run: no emulator found (Debian: qemu-user-static)"
fi
