# SPDX-License-Identifier: Apache-2.0
"""What `meson install` leaves, and a job of two ranks that runs from there."""
import json
import os
import shutil
import subprocess

from harness import launch_lines, mpi as jobs, patience


class Tree:
    """An installed tree below `prefix`."""

    def __init__(self, prefix):
        self.prefix = prefix
        found = [os.path.join(folder, "libresil.so") for folder, _, names in os.walk(prefix) if "libresil.so" in names]
        assert len(found) == 1, found
        self.library, self.libdir = found[0], os.path.dirname(found[0])
        self.command = self.path("bin", "resil")

    def path(self, *names):
        return os.path.join(self.prefix, *names)

    def resil(self, *arguments, cwd="/"):
        """The installed command, called by its name as from a user's shell."""
        environment = jobs.clean_environment({"RESIL_FILES": "", "PATH": self.path("bin") + os.pathsep + os.environ["PATH"]})
        return patience.run(["resil", *arguments], env=environment, capture_output=True, timeout=60, cwd=cwd)

    def job(self, mpi):
        """LD_PRELOAD=libresil.so mpirun ./app, as users type it; the library's folder is in the loader's path."""
        place = launch_lines.place(mpi)
        shutil.rmtree(os.path.join(place, "build"))
        environment = {**launch_lines.environment(place), "LD_LIBRARY_PATH": self.libdir}
        result = jobs.start(["sh", "-c", "LD_PRELOAD=libresil.so mpirun -np 2 ./app"], env=environment, cwd=place, timeout=60)
        assert result.returncode == 0 and b"ld.so" not in result.stderr, result.text()
        launch_lines.check(place, 2, result.stdout)
        directory, = [name for name in os.listdir(place) if name.startswith("resil-app-")]
        done = self.resil("report", "--json", os.path.join(place, directory))
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)


def install(build, prefix):
    """Installs a finished build, and puts what it installed to another place than it was configured for."""
    stage = jobs.scratch()
    subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", stage], check=True, timeout=600,
                   stdout=subprocess.DEVNULL)
    tops = [folder for folder, _, names in os.walk(stage) if os.path.basename(folder) == "bin" and "resil" in names]
    assert len(tops) == 1, tops
    shutil.move(os.path.dirname(tops[0]), prefix)
    return Tree(prefix)
