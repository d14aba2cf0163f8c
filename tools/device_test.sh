#!/usr/bin/env bash
# The decode tests on a device that is not the CPU's: llama.cpp with ggml's Vulkan backend, in an
# environment of its own (.device). Without a GPU it is Mesa's software device, which has memory, a
# queue and a compiler of its own like any other; with one, VISIBLE chooses among them.
#
#     tools/device_test.sh [pytest's arguments]
#
# Requires Debian's mesa-vulkan-drivers libvulkan-dev glslc spirv-headers, or their like. The wheel
# takes some 20 minutes on two cores and is kept in llgbench's cache.
set -euo pipefail
cd "$(dirname "$0")/.."
VISIBLE=${VISIBLE:-0}
BIN=.device/bin

missing=()
command -v glslc > /dev/null || missing+=(glslc)
[ -e /usr/include/vulkan/vulkan.hpp ] || [ -n "${VULKAN_SDK:-}" ] || missing+=(libvulkan-dev)
[ -e /usr/include/spirv ] || [ -n "${VULKAN_SDK:-}" ] || missing+=(spirv-headers)
compgen -G '/usr/share/vulkan/icd.d/*.json' > /dev/null || missing+=(mesa-vulkan-drivers)
if [ "${#missing[@]}" -gt 0 ]; then
    echo "device tests require: ${missing[*]} (Debian: apt-get install ${missing[*]})" >&2
    exit 2
fi

[ -x "$BIN/python" ] || "${PYTHON:-python3}" -m venv .device
"$BIN/python" -m pip install --quiet --upgrade pip setuptools cffi
wheels=$("$BIN/python" tools/llama_wheel.py --vulkan)
"$BIN/python" -m pip install --quiet --find-links "$wheels" \
    "$(echo "$wheels"/llama_cpp_python-*.whl)" -e '.[dev]'

# ggml leaves software devices out unless they are named by number.
export GGML_VK_VISIBLE_DEVICES=$VISIBLE LLGBENCH_TEST_DEVICE=Vulkan0
"$BIN/python" -m llgbench.commands.cli doctor --json | "$BIN/python" -c '
import json, sys
found = [f for f in json.load(sys.stdin) if f["what"] == "device Vulkan0"]
sys.exit(0 if found and print(found[0]["detail"]) is None else "ggml sees no Vulkan device here")'
if [ $# -eq 0 ]; then set -- tests/test_devices.py tests/test_decode.py; fi
exec "$BIN/python" -m pytest "$@"
