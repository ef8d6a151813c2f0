# SPDX-License-Identifier: Apache-2.0
#
# Spack recipe: put this folder as packages/resil into a repository of your site (spack repo create), the tarball
# (git archive --prefix=resil-VERSION/ vVERSION | gzip) into its mirror. One installation serves every MPI: nothing depends on one.
from spack.package import *


class Resil(MesonPackage):
    """Finds hangs, wrong data and irreproducible results of MPI programs: a library that is preloaded, and the command
    that starts jobs with it and reads what it found."""

    url = "resil-0.1.0.tar.gz"
    manual_download = True

    license("Apache-2.0")

    version("0.1.0")

    depends_on("cxx", type="build")
    depends_on("meson@1.0:", type="build")
    depends_on("ninja", type="build")
    depends_on("xxhash@0.8:", type="build")
    depends_on("python@3.9:", type=("build", "run"))

    requires("target=x86_64:", "target=aarch64:", policy="one_of")
    requires("platform=linux")

    build_targets = ["package"]

    def setup_run_environment(self, env):
        env.set("LIBRESIL", join_path(self.prefix.lib, "libresil.so"))

    def test_version(self):
        """resil --version names the library's version"""
        out = which(self.prefix.bin.resil)("--version", output=str)
        assert str(self.spec.version) in out
