#!/usr/bin/env bash
# The decode tests on a device that is not the CPU: llama.cpp with ggml's Vulkan backend, in a folder
# of its own (.device). Without a GPU it is Mesa's software device, which has memory, a queue and a
# compiler of its own like any other; VISIBLE chooses among several.
#
#     tools/device_test.sh [pytest's arguments]
#
# Requires Debian's mesa-vulkan-drivers libvulkan-dev glslc spirv-headers, or their like. The first
# run builds for some 15 minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}

missing=()
command -v glslc > /dev/null || missing+=(glslc)
if [ -z "${VULKAN_SDK:-}" ]; then
    [ -e /usr/include/vulkan/vulkan.hpp ] || missing+=(libvulkan-dev)
    [ -e /usr/include/spirv ] || missing+=(spirv-headers)
fi
compgen -G '/usr/share/vulkan/icd.d/*.json' > /dev/null || missing+=(mesa-vulkan-drivers)
if [ "${#missing[@]}" -gt 0 ]; then
    echo "device tests require ${missing[*]}; run: apt-get install ${missing[*]}" >&2
    exit 2
fi

PYTHON=$PYTHON tools/llama_build.sh .device -DGGML_VULKAN=ON -DGGML_NATIVE=OFF > .device.log 2>&1 || {
    tail -5 .device.log >&2
    echo "the Vulkan build fails; its log is .device.log" >&2
    exit 2
}

# ggml leaves software devices out unless they are named by number.
export GGML_VK_VISIBLE_DEVICES=${VISIBLE:-0} LLGBENCH_TEST_DEVICE=Vulkan0
export LLAMA_CPP_LIB_PATH=$PWD/.device/bin
"$PYTHON" -m llgbench.commands.cli doctor | grep '^device Vulkan0' || {
    echo "ggml sees no Vulkan device here; see: vulkaninfo --summary" >&2
    exit 2
}
if [ $# -eq 0 ]; then set -- tests/test_devices.py; fi
exec "$PYTHON" -m pytest "$@"
