# What both recipes of containers run inside Debian, as root: Python, then `make venv`.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends ca-certificates git make python3 python3-venv
rm -rf /var/lib/apt/lists/*
cd /opt/brio
PIP_NO_CACHE_DIR=1 make venv TORCH_INDEX="${TORCH_INDEX:-}"
