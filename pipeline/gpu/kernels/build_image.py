#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels for all devices that a compiler knows, and writes the image as the initialiser of an array.

    build_image.py cuda|hip OUTPUT SOURCE INCLUDE_DIRECTORY [COMPILER]

COMPILER is nvcc (cuda) or clang (both; no toolkit is needed). Without one the image is empty.
"""

import os
import re
import struct
import subprocess
import sys

# Devices to have code for, as far as the compiler knows them. CUDA: for others the driver compiles the PTX.
CUDA_CODE = [70, 80, 90, 100, 120]
CUDA_FIRST = 60  # for PTX, and the oldest that has all that is used
HIP_CODE = ["gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100"]


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit("%s\n%s" % (" ".join(command), done.stdout))
    return done.stdout


def lower_version(path, architecture):
    """Kernels use what PTX has had for long, so say so: a driver refuses a version that is newer than itself. Whether
    the version has what is used is checked by ptxas."""
    needed = "6.0" if architecture < 70 else "6.3" if architecture < 80 else "7.0"
    with open(path, encoding="ascii") as file:
        text = file.read()
    with open(path, "w", encoding="ascii") as file:
        file.write(re.sub(r"^\.version .*$", ".version " + needed, text, flags=re.M))


def nvcc(compiler, source, include, work):
    known = sorted(int(a) for a in re.findall(r"compute_(\d+)\b", run(compiler, "--list-gpu-arch")))
    first = min(a for a in known if a >= CUDA_FIRST)
    tools = os.path.dirname(os.path.realpath(compiler))
    ptx = work + ".ptx"
    run(compiler, "-ptx", f"-arch=compute_{first}", "-std=c++17", "-O3", "--expt-relaxed-constexpr", "-I", include,
        "-o", ptx, source)
    lower_version(ptx, first)
    images = []
    for architecture in [a for a in CUDA_CODE if a in known] or [first]:
        cubin = f"{work}.{architecture}.cubin"
        run(os.path.join(tools, "ptxas"), "-O3", f"-arch=sm_{architecture}", "-o", cubin, ptx)
        images.append(f"--image3=kind=elf,sm={architecture},file={cubin}")
    run(os.path.join(tools, "fatbinary"), "-64", "--compress=false", "--create=" + work, *images)
    with open(ptx, "rb") as file, open(work + ".portable", "wb") as copy:
        copy.write(file.read() + b"\0")
    return "nvcc " + re.search(r"release ([\d.]+)", run(compiler, "--version")).group(1)


def clang(compiler, api, source, include, work):
    common = [compiler, "-std=c++17", "-O3", "-I", include, "--cuda-device-only", "-Wno-unknown-cuda-version", "-o", work]
    if api == "cuda":  # as text: drivers take it as it is, and compile it
        run(*common, "-nocudainc", "-nocudalib", "--cuda-gpu-arch=sm_60", "-Xclang", "-target-feature", "-Xclang", "+ptx60",
            "-S", "-x", "cuda", source)
        with open(work, "ab") as file:
            file.write(b"\0")
    else:
        known = run(compiler, "--target=amdgcn-amd-amdhsa", "-nogpulib", "--print-supported-cpus")
        devices = [a for a in HIP_CODE if re.search(r"\b%s\b" % a, known)]
        run(*common, "-nogpuinc", "-nogpulib", *["--offload-arch=" + a for a in devices], "-x", "hip", source)
    return "clang " + re.search(r"version ([\d.]+)", run(compiler, "--version")).group(1)


def write_array(file, declared, data):
    words = ["0x%x" % word for (word,) in struct.iter_unpack("=Q", data + b"\0" * (8 - len(data) % 8))]
    file.write(declared + " = {\n")
    for begin in range(0, len(words), 12):
        file.write(",".join(words[begin:begin + 12]) + ",\n")
    file.write("};\n")


def main(api, output, source, include, compiler=""):
    name, work, data = "", output + ".image", b""
    if compiler:
        name = os.path.basename(compiler)
        name = nvcc(compiler, source, include, work) if name == "nvcc" else clang(compiler, api, source, include, work)
        with open(work, "rb") as file:
            data = file.read()
    with open(output, "w", encoding="ascii") as file:
        write_array(file, "alignas(4096) constexpr uint64_t %s_words[]" % api, data)
        file.write(f'constexpr size_t {api}_bytes = {len(data)};\n')
        if name.startswith("nvcc"):
            with open(work + ".portable", "rb") as portable:
                write_array(file, "constexpr uint64_t %s_portable[]" % api, portable.read())
        else:
            file.write(f"constexpr const void* {api}_portable = nullptr;\n")
        file.write(f'constexpr const char* {api}_compiler = "{name}";\n')


if __name__ == "__main__":
    main(*sys.argv[1:])
