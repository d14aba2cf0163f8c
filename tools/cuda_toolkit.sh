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
# libcuda comes with the driver, and a toolkit has a stub of it: every function of cuda.h, which says
# that it is a stub (CUDA_ERROR_STUB_LIBRARY). The names have to be there: from an empty library the
# linker needs nothing, and the result would not ask for the driver's where there is one.
mkdir -p stubs
echo '#include <cuda.h>' | "${CC:-cc}" -E -P -I "$folder/toolkit/include" - |
    grep -oE '\bcu[A-Z][A-Za-z0-9_]* *\(' | tr -d ' (' | sort -u |
    sed 's/.*/int &(void) { return 34; }/' > stubs/libcuda.c
"${CC:-cc}" -shared -fPIC stubs/libcuda.c -o stubs/libcuda.so.1 -Wl,-soname,libcuda.so.1
ln -sf libcuda.so.1 stubs/libcuda.so

cat > "$folder/environment" << END
export CUDAToolkit_ROOT=$folder/toolkit CUDACXX=$folder/toolkit/bin/nvcc
export PATH=$folder/toolkit/bin:\$PATH
END
