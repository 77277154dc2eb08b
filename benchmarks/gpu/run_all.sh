#!/usr/bin/env bash
# Everything that is measured on a GPU, in one call of under nine minutes; called again, it goes on
# with the parts that have no record yet. PYTHON names the Python that has torch; see `--help`.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PYTHONPATH="src:."
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
exec "${PYTHON:-python3}" -m benchmarks.gpu.run "$@"
