#!/usr/bin/env bash
# Sets up build/peers/.venv with the engines that ours is compared with. Does nothing when they are there.
# llama.cpp is compiled for this processor, with its own matrix products and OpenMP: its best on a CPU,
# ten minutes on two cores.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

here=benchmarks/peers
place=build/peers
venv=$place/.venv
log=$place/set-up.log
stamp=$venv/stamp
llama_version=0.3.36

# step MESSAGE COMMAND...: one progress line; output goes to the log, whose end is shown on failure.
step() {
  local message=$1 began=$SECONDS
  shift
  printf '%s ... ' "$message"
  if "$@" >>"$log" 2>&1; then
    echo "done in $((SECONDS - began)) s"
  else
    printf 'failed; the end of %s:\n' "$log"
    tail -n 30 "$log"
    exit 1
  fi
}

pip() {
  "$venv/bin/python" -m pip "$@" --disable-pip-version-check --no-input --progress-bar off
}

install_python_engines() {
  step "Creating $venv" "${PYTHON:-python3}" -m venv --clear "$venv"
  # torch first and alone: what depends on it must not choose another build.
  step "Installing torch" pip install "$(grep -E '^torch==' constraints.txt)"
  step "Installing OpenVINO" pip install -r $here/requirements.txt
  # Without its dependency torchvision, whose builds do not fit every torch.
  step "Installing optimum-intel" pip install --no-deps optimum-intel==2.2.0
}

# The binding, and the library in its place: the binding's own build compiles much that no one calls here.
install_llama() {
  local source=$place/llama-cpp-python build=$place/llama.cpp lib
  export PATH=$PWD/$venv/bin:$PATH
  rm -rf "$source" "$build"
  mkdir "$source"
  step "Fetching llama.cpp" pip download --no-deps --no-build-isolation --no-binary :all: -d "$place" \
    "llama-cpp-python==$llama_version"
  tar -xf "$place/llama_cpp_python-$llama_version.tar.gz" -C "$source" --strip-components 1
  step "Installing its binding" env CMAKE_ARGS=-DLLAMA_BUILD=OFF python -m pip install \
    --no-build-isolation "./$source"
  step "Configuring llama.cpp" cmake -S "$source/vendor/llama.cpp" -B "$build" -G Ninja \
    -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DGGML_LLAMAFILE=ON -DGGML_OPENMP=ON \
    -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_APP=OFF \
    -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON "-DCMAKE_INSTALL_RPATH=\$ORIGIN"
  step "Compiling llama.cpp" cmake --build "$build" --target llama
  lib=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/llama_cpp/lib
  mkdir -p "$lib"
  cp -a "$build"/bin/lib*.so* "$lib"
}

mkdir -p $place
fingerprint="$PWD $(cat $here/requirements.txt $here/set_up.sh constraints.txt | cksum)"
if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$fingerprint" ]; then
  : >"$log"
  install_python_engines
  install_llama
  echo "$fingerprint" >"$stamp"
fi
