#!/usr/bin/env bash
# Builds llama.cpp's libraries, as the pinned llama-cpp-python has them, with one more of ggml's
# backends. llama-cpp-python loads them in place of its own where LLAMA_CPP_LIB_PATH names the folder.
#
#     tools/llama_build.sh FOLDER -DGGML_VULKAN=ON [more of cmake's options]
#
# The libraries lie in FOLDER/bin. Without FOLDER/llama.cpp the sources are fetched from the package
# index; cmake and ninja come from there, too, where the machine has none. PYTHON: python3 by default.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mkdir -p "$1" && cd "$1" && pwd)
shift
PYTHON=${PYTHON:-python3}

pin=$(grep -o 'llama-cpp-python==[0-9.]*' "$here/pyproject.toml" | head -1)
if [ ! -d "$folder/llama.cpp" ]; then
    "$PYTHON" -m pip download --quiet --no-deps --no-binary llama-cpp-python --dest "$folder" "$pin"
    mkdir "$folder/sources"
    tar -xzf "$folder"/llama_cpp_python-*.tar.gz -C "$folder/sources" --strip-components 1
    mv "$folder/sources/vendor/llama.cpp" "$folder/llama.cpp"
    rm -rf "$folder/sources" "$folder"/llama_cpp_python-*.tar.gz
fi
if ! command -v cmake > /dev/null || ! command -v ninja > /dev/null; then
    [ -x "$folder/tools/bin/cmake" ] || {
        "$PYTHON" -m venv "$folder/tools"
        "$folder/tools/bin/python" -m pip install --quiet cmake ninja
    }
    PATH=$folder/tools/bin:$PATH
fi

# Only the libraries: llama.cpp's own programs and what they share take as long again. The version
# is asked of git where there is one, and would be this repository's.
cmake -G Ninja -S "$folder/llama.cpp" -B "$folder" -DCMAKE_BUILD_TYPE=Release \
    -DBUILD_SHARED_LIBS=ON -DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF \
    -DLLAMA_CURL=OFF -DLLAMA_BUILD_COMMIT=pinned -DLLAMA_BUILD_NUMBER=0 \
    -DCMAKE_CXX_FLAGS="-include $here/tools/vulkan_headers.h" "$@"
cmake --build "$folder" --target llama
