#!/usr/bin/env bash
# Sets up .venv in the clone: `setup_env.sh run` to use Tandem, `setup_env.sh dev` for tests and tools too.
# Does nothing when dependencies, place and stage are as they were. pip's own configuration is respected.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

stage=${1:-run}
case "$stage" in
  run) stages=(run) ;;
  dev) stages=(run dev) ;;  # what is set up for tests is for use, too
  *) echo "usage: setup_env.sh run|dev" >&2; exit 2 ;;
esac

venv=.venv
log=build/setup.log
compile_log=build/compile.log
here=$(pwd -P)

find_compiler() {
  local name
  for name in ${CXX:-c++ g++ clang++}; do
    if command -v "$name"; then return 0; fi
  done
}

native_sources() {
  find native -type f \( -name '*.cpp' -o -name '*.hpp' -o -name '*.map' -o -name CMakeLists.txt \) | LC_ALL=C sort
}

compiler=$(find_compiler || true)
# Without a compiler there are no modules to look for.
built() {
  [ -z "$compiler" ] || {
    compgen -G 'src/tandem/kernels/_native.*.so' >/dev/null && compgen -G 'src/tandem/planner/_loops.*.so' >/dev/null
  }
}

# The place counts: an editable installation and a virtual environment's scripts hold absolute paths.
fingerprint="$here $compiler $(native_sources | xargs cat pyproject.toml constraints.txt scripts/setup_env.sh | cksum)"
# fresh STAGE: nothing changed since it was set up.
fresh() {
  local stamp=$venv/stamp-$1
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$fingerprint" ] && built
}
if fresh "$stage"; then exit 0; fi

usable() {
  "$1" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
  local name
  for name in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if usable "$name"; then echo "$name"; return 0; fi
  done
  echo "No Python 3.11 or later with venv found: install one, or name it (make PYTHON=/path/to/python3)" >&2
  return 1
}

# step MESSAGE COMMAND...: one progress line; output goes to the log, whose end is shown on failure.
step() {
  local message=$1 began=$SECONDS
  shift
  printf '%s ... ' "$message"
  if "$@" >>"$log" 2>&1; then
    echo "done in $((SECONDS - began)) s"
  else
    fail "$log"
  fi
}

fail() {
  printf 'failed; the end of %s:\n' "$1"
  tail -n 30 "$1"
  exit 1
}

pip_install() {
  "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --progress-bar off \
    -c constraints.txt "$@"
}

# What pyproject.toml names for the stage, a line each.
requirements() {
  "$venv/bin/python" - "$stage" <<'EOF'
import sys, tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
extra = project["optional-dependencies"]["dev"] if sys.argv[1] == "dev" else []
print(*project["dependencies"], *extra, sep="\n")
EOF
}

# Build tools stay in .venv: an isolated build would compile everything anew each time.
install_tandem() {
  pip_install --no-build-isolation --no-deps --config-settings=cmake.define.TANDEM_NATIVE=$native -e .
}

compiling=
# Compiles beside what pip downloads and unpacks; ends with this script, however that ends.
start_compiling() {
  set -m  # a process group of its own: pip's children are stopped with it
  install_tandem >"$compile_log" 2>&1 9>&- &
  compiling=$! began_compiling=$SECONDS
  set +m
  trap 'kill -- "-$compiling" 2>/dev/null || true' EXIT
}

finish_compiling() {
  if [ "$native" = ON ]; then
    printf "Compiling the CPU kernels and the planner's loops beside it ... "
  else
    printf 'Installing Tandem ... '
  fi
  wait "$compiling" || fail "$compile_log"
  trap - EXIT
  echo "done after $((SECONDS - began_compiling)) s"
}

mkdir -p build
# One at a time, whoever calls it: two would install into, and compile in, the same place.
if command -v flock >/dev/null; then
  exec 9>build/setup.lock
  flock 9
  if fresh "$stage"; then exit 0; fi
fi
: >"$log"
if ! usable "$venv/bin/python" || ! grep -qsF "$here/$venv/bin/" "$venv/bin/pip"; then
  python=$(find_python)
  step "Creating .venv with $("$python" -V)" "$python" -m venv --clear "$venv"
fi
if ! fresh run; then
  rm -f "$venv"/stamp-*
  native=ON
  if [ -z "$compiler" ]; then
    native=OFF
    rm -f src/tandem/kernels/_native.*.so src/tandem/planner/_loops.*.so  # of sources as they were
    echo "No C++ compiler found: CPU attention will run on the slow reference kernels, and plans take" \
      "several times as long. Install g++ or clang and run this again." >&2
  fi
  step "Installing build tools" pip_install scikit-build-core nanobind cmake ninja
  start_compiling
  # torch first and alone: what depends on it must not choose another build.
  torch=$(grep -E '^torch==' constraints.txt)
  step "Installing $torch" pip_install "$torch"
fi
mapfile -t required < <(requirements)
step "Installing what Tandem depends on ($stage)" pip_install "${required[@]}"
if [ -n "$compiling" ]; then finish_compiling; fi
for each in "${stages[@]}"; do echo "$fingerprint" >"$venv/stamp-$each"; done
