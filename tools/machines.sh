#!/usr/bin/env bash
# Runs a representative part of the suite as on other machines. Each condition is one thing that a
# machine may lack; what is skipped for it is listed with its reason.
#
#     tools/machines.sh            all of them
#     tools/machines.sh NAME...    some: core valgrind cargo backtrace language home clock avx512,
#                                  small (core, backtrace, language, home and clock at once) and
#                                  bare (valgrind and cargo at once)
#
# PART names other tests than the part below; PART=tests is the whole suite:
#
#     PART=tests tools/machines.sh small bare
set -uo pipefail
cd "$(dirname "$0")/.." || exit
python=$(realpath -s "${PYTHON:-.venv/bin/python}")
# shellcheck disable=SC2206
part=(${PART:-}) && [ "${#part[@]}" -gt 0 ] || part=(tests/test_native.py tests/test_paths.py tests/test_callgrind.py tests/test_counter.py
    tests/test_overhead_counting.py tests/test_replay.py tests/test_cli.py tests/test_provenance.py)
failed=()

# The folders of PATH with everything in them but some programs.
without() {
    local folder=$1 program
    shift
    IFS=: read -ra places <<< "$PATH"
    for ((at = ${#places[@]} - 1; at >= 0; at--)); do # the first of a name wins
        [ -d "${places[at]}" ] && find -L "${places[at]}" -maxdepth 1 -type f -perm /111 \
            -exec ln -sft "$folder" {} + 2> /dev/null
    done
    for program in "$@"; do rm -f "$folder/$program"; done
}

suite() {
    local name=$1
    shift
    echo "== $name"
    "$@" -m pytest -q -p no:cacheprovider "${part[@]}" || failed+=("$name")
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for name in "${@:-core valgrind cargo backtrace language home clock avx512 small bare}"; do
    for one in $name; do
        mkdir -p "$scratch/$one"
        case $one in
            core) suite "one core" taskset -c 0 "$python" ;;
            valgrind)
                without "$scratch/$one" valgrind
                suite "no valgrind" env PATH="$scratch/$one" "$python"
                ;;
            cargo)
                without "$scratch/$one" cargo rustc rustup
                suite "no cargo" env PATH="$scratch/$one" "$python"
                ;;
            backtrace) suite "RUST_BACKTRACE" env RUST_BACKTRACE=1 "$python" ;;
            language)
                suite "LANG=C" env -u LC_ALL -u LC_CTYPE LANG=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 "$python"
                ;;
            home) suite "no HOME" env -u HOME "$python" ;;
            clock) suite "no TSC" env LLGBENCH_CLOCK=monotonic "$python" ;;
            avx512)
                # What the C library chooses at run time; under valgrind no program sees AVX-512.
                suite "no AVX-512" env GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW "$python"
                ;;
            small)
                suite "one core, RUST_BACKTRACE, LANG=C, no HOME, no TSC" taskset -c 0 \
                    env -u LC_ALL -u LC_CTYPE -u HOME LANG=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 \
                    RUST_BACKTRACE=1 LLGBENCH_CLOCK=monotonic "$python"
                ;;
            bare)
                without "$scratch/$one" valgrind cargo rustc rustup
                suite "no valgrind, no cargo" env PATH="$scratch/$one" "$python"
                ;;
            *) echo "unknown: $one" >&2; exit 2 ;;
        esac
    done
done
if [ "${#failed[@]}" -gt 0 ]; then
    printf 'failed: %s\n' "${failed[@]}"
    exit 1
fi
echo "all conditions hold"
