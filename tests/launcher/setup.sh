#!/usr/bin/env bash
# Installs launchers for the tests marked `launcher`, each in an environment of its own, from the package indexes.
# Usage: setup.sh [sky] [trainers] [k8s] [verl] [maxtext] [bridge] [slurm]      (all without arguments; what is there is left alone)
# Sizes on disk and times on two cores: sky 460 MB 41 s, trainers 2700 MB 91 s, k8s 154 MB 12 s, verl 49 MB 13 s,
# maxtext 800 MB 99 s, bridge 170 MB 20 s, slurm 13 MB 9 s (Debian packages, as root).
# MaxText needs Python 3.12: one on the path, of pyenv, or named in PYTHON312. Without one it is left out, and said.
set -euo pipefail
target="${TRAINPLAN_LAUNCHERS:-$HOME/.cache/trainplan/launchers}"
python="${PYTHON:-python3}"
mkdir -p "$target"

environment() { # name, marker of the versions it stands for, and the Python if another one is needed
  if [ "$(cat "$target/$1/.versions" 2>/dev/null)" = "$2" ]; then return 1; fi
  rm -rf "${target:?}/$1"
  "${3:-$python}" -m venv "$target/$1"
}
pip_in() { # name, arguments of pip install
  local name=$1
  shift
  nice "$target/$name/bin/python" -m pip install --quiet --disable-pip-version-check "$@" 2> >(grep -v '^WARNING: Location' >&2)
}
finish() { echo "$2" >"$target/$1/.versions"; }

install_sky() {
  local versions="skypilot==0.14.1"
  environment sky "$versions" || return 0
  pip_in sky "$versions"
  finish sky "$versions"
}
install_trainers() {
  local versions="torch==2.13.0 triton==3.9.0 accelerate==1.15.0 trl==1.16.0 transformers==5.24.0 deepspeed==0.19.8"
  versions+=" torchtitan==0.3.0 torchao==0.18.0 megatron-core==0.19.2"
  environment trainers "$versions" || return 0
  pip_in trainers torch==2.13.0
  pip_in trainers triton==3.9.0 accelerate==1.15.0 trl==1.16.0 transformers==5.24.0 deepspeed==0.19.8 \
    torchtitan==0.3.0 torchao==0.18.0
  # Its metadata asks for Python 3.12; the argument parser runs on 3.11 and needs none of the dependencies.
  pip_in trainers --no-deps --ignore-requires-python megatron-core==0.19.2
  finish trainers "$versions"
}
install_k8s() {
  local versions="kubernetes-validate==1.37.0 jsonschema pyyaml cel-python"
  environment k8s "$versions" || return 0
  # shellcheck disable=SC2086
  pip_in k8s $versions
  finish k8s "$versions"
}
install_verl() {
  local versions="hydra-core verl==0.9.1"
  environment verl "$versions" || return 0
  pip_in verl hydra-core
  pip_in verl --no-deps verl==0.9.1
  finish verl "$versions"
}
python312() { # a Python 3.12, as MaxText needs; nothing when there is none
  local found
  for found in "${PYTHON312:-}" "$python" python3.12 python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.12.*/bin/python; do
    if [ -n "$found" ] && "$found" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null; then
      echo "$found"
      return 0
    fi
  done
}
install_maxtext() {
  # Its reader of configurations, and what that imports; not the accelerators' packages.
  local versions="maxtext==0.2.5" needs="jax==0.12.0.1 flax==0.12.12 omegaconf pydantic pyyaml jinja2 psutil pathwaysutils"
  local interpreter
  interpreter=$(python312)
  if [ -z "$interpreter" ]; then echo "maxtext: needs Python 3.12, and there is none here" >&2; return 0; fi
  environment maxtext "$versions $needs" "$interpreter" || return 0
  # shellcheck disable=SC2086
  pip_in maxtext $needs absl-py requests packaging
  pip_in maxtext --no-deps "$versions"
  finish maxtext "$versions $needs"
}
install_bridge() {
  # Beside the trainers: they lend it torch and Megatron-LM. Its metadata asks for Python 3.12; its configuration
  # classes run on 3.11 too.
  local versions="megatron-bridge==0.6.2 transformers==5.12.1 tokenizers==0.22.2 omegaconf==2.4.0"
  versions+=" antlr4-python3-runtime==4.13.2 hydra-core==1.3.8"
  install_trainers
  environment bridge "$versions" || return 0
  # shellcheck disable=SC2086
  pip_in bridge --no-deps --ignore-requires-python $versions
  "$target/trainers/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
    >"$("$target/bridge/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/trainers.pth"
  finish bridge "$versions"
}
install_slurm() {
  if command -v slurmctld >/dev/null && command -v munged >/dev/null; then return 0; fi
  if [ "$(id -u)" != 0 ]; then echo "slurm: needs root to install" >&2; return 0; fi
  apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client munge >/dev/null ||
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client munge >/dev/null; }
}

if [ "$#" = 1 ]; then
  started=$(date +%s)
  "install_$1"
  echo "$1: $(($(date +%s) - started)) s"
  exit
fi
if [ "$#" = 0 ]; then set -- sky trainers k8s verl maxtext bridge slurm; fi
failed=()
for name in "$@"; do bash "${BASH_SOURCE[0]}" "$name" || failed+=("$name"); done
if [ "${#failed[@]}" != 0 ]; then
  echo "not installed: ${failed[*]}" >&2
  exit 1
fi
