#!/usr/bin/env bash
# Decoding on a GPU, on a machine that has one, a CUDA toolkit, and no network.
#
#     tools/gpu.sh pack     here: all that the other machine lacks, into carry/gpu.tar.xz (< 60 MB)
#     tools/gpu.sh          there, in this checkout with carry/ in it: builds, decodes, writes $OUT
#
# It takes 9 minutes at most. $OUT (default gpu-results) gets the records, and for each shape a
# section.md with its table and decode.png; what is not done in time is left out, and said.
#
# Set besides: DEVICE (cuda), SHAPES, VOCABS, MODES, SEQUENCES, ROUNDS, MINUTES, PYTHON; LIBRARIES, a
# folder of llama.cpp's libraries that are built already; for pack PYTHON_VERSION, the other machine's.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
read -ra SHAPES <<< "${SHAPES:-llama-3.2-1b llama-3.1-8b}"
read -ra VOCABS <<< "${VOCABS:-llama-bpe qwen2}"
read -ra MODES <<< "${MODES:-mask-first overlap}"
read -ra SEQUENCES <<< "${SEQUENCES:-1 8 64}"

pack() {
    local site version pin
    place=$(mktemp -d)
    trap 'rm -rf "$place"' EXIT
    site=$place/site
    version=${PYTHON_VERSION:-$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')}
    # What decode and its report import; llama-cpp-python comes without its libraries.
    "$PYTHON" -m pip install --quiet --target "$site" --only-binary :all: \
        --python-version "$version" --implementation cp \
        llguidance==1.9.1 numpy==2.4.6 gguf==0.19.0 cffi click msgspec packaging rich pandas \
        matplotlib diskcache jinja2 typing-extensions
    "$PYTHON" -m pip install --quiet --target "$place/cmake" --only-binary :all: cmake ninja
    "$PYTHON" - "$site" << 'END'
import pathlib, shutil, sys
from importlib.metadata import distribution
found = distribution("llama-cpp-python")
for name in ("llama_cpp", f"llama_cpp_python-{found.version}.dist-info"):
    shutil.copytree(found.locate_file(name), pathlib.Path(sys.argv[1], name),
                    ignore=shutil.ignore_patterns("lib", "__pycache__"))
END
    find "$place" \( -name tests -o -name __pycache__ -o -name '*.pyi' -o -name doc -o -name man \) \
        -prune -exec rm -rf {} +
    find "$place/cmake" \( -name ctest -o -name cpack -o -name ccmake -o -name Help \) -prune \
        -exec rm -rf {} +
    pin=$(grep -o 'llama-cpp-python==[0-9.]*' pyproject.toml | head -1)
    if [ -d "${SOURCES:-}" ]; then
        cp -r "$SOURCES" "$place/llama.cpp"
    else
        "$PYTHON" -m pip download --quiet --no-deps --no-binary llama-cpp-python --dest "$place" "$pin"
        mkdir "$place/sdist"
        tar -xzf "$place"/llama_cpp_python-*.tar.gz -C "$place/sdist" --strip-components 1
        mv "$place/sdist/vendor/llama.cpp" "$place/llama.cpp"
        rm -rf "$place/sdist" "$place"/llama_cpp_python-*.tar.gz
    fi
    # Of the sources, what the library with CUDA is made of.
    (cd "$place/llama.cpp" &&
        find . -mindepth 1 -maxdepth 1 ! -name ggml ! -name src ! -name include ! -name cmake \
            ! -name CMakeLists.txt ! -name LICENSE ! -name '*.in' -exec rm -rf {} + &&
        find ggml/src -mindepth 1 -maxdepth 1 -type d -name 'ggml-*' ! -name ggml-cpu \
            ! -name ggml-cuda -exec rm -rf {} +)
    mkdir "$place/vocabs"
    for vocab in "${VOCABS[@]}"; do cp -L "vocabs/ggml-vocab-$vocab.gguf" "$place/vocabs"; done
    cp src/llgbench/_native.abi3.so "$place"
    echo "$version" > "$place/python"
    mkdir -p carry
    tar -C "$place" -cf - . | xz -T0 -6 > carry/gpu.tar.xz
    ls -l carry/gpu.tar.xz
    if [ "$(stat -c %s carry/gpu.tar.xz)" -gt 60000000 ]; then
        echo "carry/gpu.tar.xz is larger than 60 MB" >&2
        exit 2
    fi
}

left() { echo $((${MINUTES:-9} * 60 - SECONDS)); }

run() {
    local out work version
    out=$(mkdir -p "${OUT:-gpu-results}" && cd "${OUT:-gpu-results}" && pwd)
    work=${WORK:-$(mktemp -d)}
    [ -f carry/gpu.tar.xz ] || { echo "carry/gpu.tar.xz is not here; run: tools/gpu.sh pack" >&2; exit 2; }
    tar -xJf carry/gpu.tar.xz -C "$work"
    version=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    if [ "$version" != "$(cat "$work/python")" ]; then
        echo "packed for Python $(cat "$work/python"), and here is $version;" \
            "run: PYTHON_VERSION=$version tools/gpu.sh pack" >&2
        exit 2
    fi
    cp -n "$work"/vocabs/*.gguf vocabs/ || true
    cp "$work/_native.abi3.so" src/llgbench/
    export PYTHONPATH=$PWD/src:$work/site LLGBENCH_CACHE=$work/cache
    export PATH=$PATH:$work/cmake/bin:/usr/local/cuda/bin
    if [ -z "${LIBRARIES:-}" ]; then
        mkdir -p "$work/build"
        mv "$work/llama.cpp" "$work/build/llama.cpp"
        PYTHONPATH=$work/cmake tools/llama_build.sh "$work/build" -DGGML_CUDA=ON \
            -DCMAKE_CUDA_ARCHITECTURES=native -DGGML_NATIVE=ON > "$out/build.log" 2>&1 || {
            tail -5 "$out/build.log" >&2
            exit 2
        }
        LIBRARIES=$work/build/bin
        echo "built in $SECONDS s"
    fi
    export LLAMA_CPP_LIB_PATH=$LIBRARIES
    "$PYTHON" -m llgbench.commands.cli doctor | grep '^device' | tee "$out/devices.txt"
    local options=(--device "${DEVICE:-cuda}" --variant greedy_tokenize --rounds "${ROUNDS:-1}")
    for vocab in "${VOCABS[@]}"; do options+=(--vocab "$vocab"); done
    for mode in "${MODES[@]}"; do options+=(--mode "$mode"); done
    for shape in "${SHAPES[@]}"; do
        for n in "${SEQUENCES[@]}"; do
            [ "$(left)" -gt 20 ] || { echo "no time left for $shape, $n sequences"; continue; }
            # One record each: what the clock ends is lost alone. SIGINT keeps what was measured.
            timeout --signal=INT "$(left)" "$PYTHON" -m llgbench.commands.cli decode \
                "${options[@]}" --shape "$shape" --sequences "$n" --results "$out/$shape-$n" ||
                echo "$shape, $n sequences: status $?"
            "$PYTHON" - "$out/$shape-$n" << 'END' || true
import pathlib, sys
from llgbench.report import decode
folder = pathlib.Path(sys.argv[1])
record = decode.latest(folder)
if record is not None:
    (folder / "section.md").write_text(decode.write(record, folder))
END
        done
    done
    cat "$out"/*/section.md > "$out/sections.md" 2> /dev/null || true
    echo "done after $SECONDS s: $out"
}

case "${1:-run}" in
    pack) pack ;;
    run) run ;;
    *) sed -n '2,13p' "$0" >&2; exit 2 ;;
esac
