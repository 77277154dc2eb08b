#!/usr/bin/env bash
# Everything that is measured on a GPU, in one call of under nine minutes; called again, it goes on
# with the parts that have no record yet. PYTHON names the Python that has torch; PEERS, wheels or
# folders of peers that are not installed, separated by colons; see `--help`.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PYTHONPATH="src:.${PEERS:+:$PEERS}"
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
python="${PYTHON:-python3}"
if ! "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("torch") is None)'; then
    echo "$python has no torch; name a Python that has it: PYTHON=... $0" >&2
    exit 1
fi
exec "$python" -m benchmarks.gpu.run "$@"
