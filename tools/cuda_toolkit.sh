#!/usr/bin/env bash
# A CUDA toolkit from Python packages, for a machine that has none: enough to compile and link ggml's
# CUDA backend, not to run it (that takes a GPU and its driver).
#
#     tools/cuda_toolkit.sh FOLDER                     makes FOLDER/toolkit (1.1 GB)
#     . FOLDER/environment                             names it to cmake
#     tools/llama_build.sh FOLDER/build -DGGML_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=90
#
# PYTHON: python3 by default.
set -euo pipefail
folder=$(mkdir -p "$1" && cd "$1" && pwd)
PYTHON=${PYTHON:-python3}

"$PYTHON" -m pip install --quiet --target "$folder/packages" \
    nvidia-cuda-nvcc nvidia-cuda-runtime nvidia-cuda-cccl nvidia-cublas
ln -sfn packages/nvidia/cu13 "$folder/toolkit"

# The packages hold the libraries under the names that programs load; a linker looks for these.
cd "$folder/toolkit/lib"
for library in cudart cublas cublasLt; do ln -sf "lib$library.so.13" "lib$library.so"; done
ln -sfn lib ../lib64
# libcuda comes with the driver, and a toolkit has a stub of it. Nothing of it is called at build time,
# and a shared library may be linked with names that are found when it is loaded: an empty one will do.
mkdir -p stubs
"${CC:-cc}" -shared -x c /dev/null -o stubs/libcuda.so -Wl,-soname,libcuda.so.1

cat > "$folder/environment" << END
export CUDAToolkit_ROOT=$folder/toolkit CUDACXX=$folder/toolkit/bin/nvcc
export PATH=$folder/toolkit/bin:\$PATH
END
