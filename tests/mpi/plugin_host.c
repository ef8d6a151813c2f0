// SPDX-License-Identifier: Apache-2.0
//
// A program without MPI that loads plug-ins linked with MPI, each into a scope of its own (RTLD_LOCAL), as Python
// and many frameworks do. With a second plug-in of another MPI there are two MPIs in the process; only the first
// one is used.
//
// ranks: 2
// arguments: PLUGIN [SECOND]
// calls: MPI_Init=1 MPI_Allreduce=5 MPI_Sendrecv_replace=1 MPI_Finalize=1
#include <dlfcn.h>

#include "check.h"

int main(int argc, char** argv) {
  CHECK(argc >= 2);
  void* plugin = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (!plugin) fprintf(stderr, "%s\n", dlerror());
  CHECK(plugin);
  if (argc > 2) CHECK(dlopen(argv[2], RTLD_NOW | RTLD_LOCAL));
  int (*run)(int*, char***) = (int (*)(int*, char***))dlsym(plugin, "plugin_run");
  CHECK(run);
  return run(&argc, &argv);
}
